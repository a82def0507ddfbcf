//! The programs of `examples/programs` do what their pages say, on a real Redis and PostgreSQL, and beside a real Redisson.

use crate::support::postgres::Postgres;
use crate::support::{Java, Server, eventually, setting, versions};
use redisson_lock::Client;
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

#[tokio::test(flavor = "multi_thread")]
async fn the_invoice_service_answers_200_409_and_503() {
    let mut server = Server::start();
    let folder = Folder::new();
    let mut services = Vec::new();
    for _ in 0..2 {
        let variables = [("LISTEN", "127.0.0.1:0"), ("INVOICES", folder.text())];
        let mut service = Program::start("invoice-service", &server, &variables);
        let address = service.line().await.strip_prefix("listening on ").unwrap().to_owned();
        eventually_ok(&address).await;
        services.push((service, address));
    }
    let addresses: Vec<String> = services.iter().map(|(_, address)| address.clone()).collect();

    // Two processes number the invoices of one customer, without a gap and without a duplicate.
    let requests = (0..20).map(|n| {
        let address = addresses[n % 2].clone();
        tokio::spawn(async move {
            loop {
                let reply = request("POST", "/invoices/7", &address).await;
                // On a slow machine, not all of them get their turns within a second.
                if reply.0 != 409 {
                    return reply;
                }
            }
        })
    });
    let mut numbers = BTreeSet::new();
    for reply in requests.collect::<Vec<_>>() {
        let (status, body) = reply.await.unwrap();
        assert_eq!(status, 200, "{body}");
        numbers.insert(body.trim().parse::<u32>().unwrap());
    }
    assert_eq!(numbers, (1..=20).collect());

    let other = Client::connect(server.url()).await.unwrap();
    let guard = other.mutex("invoices:7").lock().await.unwrap();
    let (status, body) = request("POST", "/invoices/7", &addresses[0]).await;
    assert_eq!((status, body.as_str()), (409, "another request holds the lock of this customer\n"));
    assert_eq!(request("POST", "/invoices/8", &addresses[0]).await, (200, "1\n".to_owned()));
    guard.unlock().await.unwrap();

    server.kill();
    for path in ["POST /invoices/7", "GET /health"] {
        let (method, path) = path.split_once(' ').unwrap();
        let (status, body) = request(method, path, &addresses[0]).await;
        assert_eq!(status, 503, "{body}");
    }
    server.start_again();
    eventually_ok(&addresses[0]).await;
    assert_eq!(request("POST", "/invoices/7", &addresses[0]).await, (200, "21\n".to_owned()));

    for (service, _) in services {
        let pid = service.child.id().and_then(|pid| rustix::process::Pid::from_raw(pid as i32)).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(service.end().await, (Some(0), "stopped\n".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stock_workers_share_locks_with_java_and_the_database_refuses_a_stale_token() {
    let newest = versions().pop().unwrap();
    let server = Server::start();
    let postgres = Postgres::start();
    let mut database = postgres.session();
    database.run(include_str!("../../examples/programs/stock-workers/schema.sql"));
    database
        .run("INSERT INTO prices VALUES ('tea', 10); INSERT INTO stock (item, amount) VALUES ('tea', 100)");
    let java = Java::get(&newest).client(&server, 0).await;
    let thread = java.thread("t");
    let url = postgres.url();
    let mut workers = Program::start("stock-workers", &server, &[("DATABASE_URL", &url)]);

    // Java changes the prices: the sale waits, and sees the new price.
    thread.lock("write", "prices").await.unwrap();
    workers.send("sell tea 3").await;
    eventually(|| waits_for(&server, "redisson_rwlock:{prices}")).await;
    database.run("UPDATE prices SET price = 20");
    thread.unlock("write", "prices").await.unwrap();
    assert_eq!(workers.line().await, "sold 3 tea at 20 with token 1");

    // Java holds the stock of tea: the next sale waits, and has a greater token than Java.
    assert_eq!(thread.lock_and_get_token("stock:tea").await.unwrap(), 2);
    workers.send("sell tea 1").await;
    eventually(|| waits_for(&server, "redisson_lock__channel:{stock:tea}")).await;
    assert_eq!(database.run("UPDATE stock SET amount = amount - 7, token = 2 RETURNING amount"), "90");
    thread.unlock("fenced", "stock:tea").await.unwrap();
    assert_eq!(workers.line().await, "sold 1 tea at 20 with token 3");

    // A worker has a token, and its write is delayed. Meanwhile it loses the lock, and Java writes with a newer token.
    database.run("BEGIN; SELECT FROM stock WHERE item = 'tea' FOR UPDATE");
    workers.send("sell tea 5").await;
    let mut watching = postgres.session();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually(|| watching.run(waiting) == "1").await;
    thread.force_unlock("fenced", "stock:tea").await.unwrap();
    assert_eq!(thread.lock_and_get_token("stock:tea").await.unwrap(), 5);
    database.run("UPDATE stock SET amount = amount - 40, token = 5 WHERE item = 'tea'; COMMIT");
    let loss = workers.line().await;
    assert!(loss.starts_with("the lock of tea: ") && loss.contains(java.uuid()), "{loss}");
    assert_eq!(workers.line().await, "refused 5 tea: the stock is too small, or token 4 is stale");
    assert_eq!(database.run("SELECT amount, revenue, token FROM stock"), "49|80|5");
    thread.unlock("fenced", "stock:tea").await.unwrap();

    // A reader of Java keeps the price.
    thread.lock("read", "prices").await.unwrap();
    workers.send("raise 50").await;
    eventually(|| waits_for(&server, "redisson_rwlock:{prices}")).await;
    assert_eq!(database.run("SELECT price FROM prices"), "20");
    thread.unlock("read", "prices").await.unwrap();
    assert_eq!(workers.line().await, "raised 1 prices by 50 %");
    assert_eq!(database.run("SELECT price FROM prices"), "30");
    assert_eq!(workers.end().await, (Some(0), String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nightly_report_runs_once_and_publishes_nothing_after_a_loss() {
    let server = Server::start();
    let folder = Folder::new();
    let (input, report) = (folder.path().join("logs"), folder.path().join("report.txt"));
    std::fs::create_dir(&input).unwrap();
    std::fs::write(input.join("a.log"), "1\n2\n").unwrap();
    // The job is under way until this pipe has a writer.
    let pipe = input.join("b.log");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let variables =
        [("INPUT", input.to_str().unwrap()), ("REPORT", report.to_str().unwrap()), ("LEASE_SECONDS", "1")];
    let start = || Program::start("nightly-report", &server, &variables);

    let mut lost = start();
    assert!(lost.line().await.starts_with("running as "));
    let mut writer = None;
    // Fails as long as nobody reads.
    let mut options = std::fs::OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK);
    eventually(|| {
        writer = options.open(&pipe).ok();
        writer.is_some()
    })
    .await;
    let skipped = "skipped: another host has run the job, or runs it\n";
    assert_eq!(start().end().await, (Some(0), skipped.to_owned()));
    redis::cmd("DEL").arg("nightly-report").exec(&mut server.cli()).unwrap();
    assert_eq!(lost.line().await, "stopping: the record is gone");
    writer.unwrap().write_all(b"3\n").unwrap();
    let stopped = "stopped: the lock was lost, so nothing is published\n";
    assert_eq!(lost.end().await, (Some(1), stopped.to_owned()));
    assert!(!report.exists() && !report.with_extension("partial").exists());

    let mut job = start();
    assert!(job.line().await.starts_with("running as "));
    tokio::fs::write(&pipe, "3\n").await.unwrap();
    assert_eq!(job.end().await, (Some(0), "done: 3 lines\n".to_owned()));
    let expected = format!("2\t{}\n1\t{}\n", input.join("a.log").display(), pipe.display());
    assert_eq!(std::fs::read_to_string(&report).unwrap(), expected);
    // A host whose clock is late.
    assert_eq!(start().end().await, (Some(0), skipped.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_traced_orders_are_part_of_the_callers_trace() {
    let server = Server::start();
    let holder = Client::connect(server.url()).await.unwrap();
    let guard = holder.mutex("orders:2").lock().await.unwrap();
    let mut worker = Program::start("traced-orders", &server, &[]);
    let (trace, caller) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    for order in [1, 2] {
        worker.send(&format!("{order} 00-{trace}-{caller}-01")).await;
    }
    eventually(|| waits_for(&server, "redisson_lock__channel:{orders:2}")).await;
    guard.unlock().await.unwrap();
    let (status, output) = worker.end().await;
    assert_eq!(status, Some(0), "{output}");

    // Name, own id and parent of each span; the links of spans come last.
    let spans: Vec<_> = output.split("Span #").skip(1).collect();
    let value = |span: &str, field: &str| {
        let lines = span.lines().filter_map(|line| line.trim().split_once(':'));
        let mut values =
            lines.filter(|(name, _)| name.trim() == field).map(|(_, value)| value.trim().to_owned());
        values.next().unwrap_or_default()
    };
    let named = |name: &str| {
        let is_named =
            |span: &&&str| span.lines().any(|line| line.trim() == format!("Name         : {name}"));
        spans.iter().filter(is_named).copied().collect::<Vec<_>>()
    };
    assert!(spans.iter().all(|span| value(span, "TraceId") == trace), "{output}");
    let (orders, calls) = (named("order"), named("redisson_lock.acquire"));
    let (waits, holds) = (named("redisson_lock.wait"), named("redisson_lock.hold"));
    assert_eq!((orders.len(), calls.len(), waits.len(), holds.len()), (2, 2, 1, 2), "{output}");
    for at in 0..2 {
        assert_eq!(value(orders[at], "ParentSpanId"), caller);
        assert_eq!(value(calls[at], "ParentSpanId"), value(orders[at], "SpanId"));
        assert_eq!(value(holds[at], "ParentSpanId"), value(orders[at], "SpanId"));
        let (_, link) = holds[at].split_once("Links:").expect("the hold follows from its call");
        assert_eq!(value(link, "SpanId"), value(calls[at], "SpanId"));
        let port = server.address().rsplit_once(':').unwrap().1.to_owned();
        assert!(
            calls[at].contains(&format!("server.port: I64({port})"))
                && calls[at].contains("Kind         : Client")
        );
    }
    assert_eq!(value(waits[0], "ParentSpanId"), value(calls[1], "SpanId"));
}

#[test]
fn each_program_is_run_and_has_a_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/programs");
    let this = include_str!("programs.rs");
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let programs: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert!(programs.len() >= 4, "{programs:?}");
    for program in programs {
        let name = program.file_name().unwrap().to_str().unwrap();
        assert!(this.contains(&format!("(\"{name}\", ")), "no test starts {name}");
        assert!(program.join("README.md").exists(), "{name} has no README.md");
    }
}

/// A program that runs. Killed when dropped.
struct Program {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(name: &str, server: &Server, variables: &[(&str, &str)]) -> Self {
        let program = Path::new(&setting("REDISSON_LOCK_PROGRAMS")).join(name);
        let mut child = Command::new(&program)
            .env("REDIS_URL", server.url())
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { input: child.stdin.take().unwrap(), child, lines }
    }

    async fn send(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        self.lines.next_line().await.unwrap().expect("the program still runs")
    }

    /// Closes the input. Returns the exit status and the rest of the output.
    async fn end(mut self) -> (Option<i32>, String) {
        drop(self.input);
        let mut rest = String::new();
        while let Some(line) = self.lines.next_line().await.unwrap() {
            rest += &format!("{line}\n");
        }
        (self.child.wait().await.unwrap().code(), rest)
    }
}

/// Removed when dropped.
struct Folder(String);

impl Folder {
    fn new() -> Self {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("programs-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder.to_str().unwrap().to_owned())
    }

    fn text(&self) -> &str {
        &self.0
    }

    fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn waits_for(server: &Server, channel: &str) -> bool {
    crate::support::subscribers(server, channel) == 1
}

/// Waits until the service is connected to Redis.
async fn eventually_ok(address: &str) {
    let connected = async {
        while request("GET", "/health", address).await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), connected).await.expect("the service reaches Redis");
}

/// The status and the body of the reply.
async fn request(method: &str, path: &str, address: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").expect("a reply of HTTP");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
