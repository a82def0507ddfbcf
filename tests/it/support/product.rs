//! Imitations of other products: a real server behind a front that refuses what the product refuses. They follow the
//! vendor's documentation or the product's source, and each rule names its source.
//!
//! A front passes one request at a time on each connection, so that its own replies come in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redisson_lock::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::Server;
use super::cluster::Cluster;
use super::proxy::{Words, frame, words};

/// A difference between the product and Redis. The words of a request are compared without regard to case.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// A request that begins with this word, or with these two, gets this line.
    Answer(&'static str, &'static str),
    /// The payload of a `RESTORE` decides on its outcome.
    Restore(fn(&[u8]) -> Restored),
    /// An error that begins with the first text becomes the second.
    Reword(&'static str, &'static str),
    /// `INFO` lacks this field, or has another value for it.
    Info(&'static str, Option<&'static str>),
    /// A command of a script fails with this error if its key is not in `KEYS`.
    Declared(&'static str),
    /// A master without replicas gives this reply to `ROLE`.
    Role(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub enum Restored {
    AsRedis,
    Refused(&'static str),
    /// The connection is closed without a reply.
    Crashed,
}

/// The server behind the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    OneServer,
    /// One node with all slots of a cluster. It refuses a request for several slots.
    AllSlots,
}

#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub name: &'static str,
    pub behind: Behind,
    pub rules: &'static [Rule],
}

const UNKNOWN: &str = "-ERR unknown command";
const NO_SUCH_SUBCOMMAND: &str = "-ERR unknown subcommand";

pub const ELASTICACHE_SERVERLESS: Product = Product {
    name: "ElastiCache Serverless",
    // "All slots are surfaced to clients as being owned by a single virtual node", `cluster-enabled yes`: "Valkey and Redis OSS
    // configuration and limits", https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/RedisConfiguration.html
    behind: Behind::AllSlots,
    rules: &[
        // "Restricted commands", https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/ClientConfig.RestrictedCommands.html
        Rule::Answer("config", UNKNOWN),
        Rule::Answer("debug", UNKNOWN),
        // Serverless caches have the commands that are listed in "Supported and restricted Valkey, Memcached, and Redis OSS
        // commands", https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/SupportedCommands.html: these two are taken as missing.
        Rule::Answer("role", UNKNOWN),
        Rule::Answer("wait", UNKNOWN),
        // `maxmemory-policy volatile-lru` in the page on configuration above.
        Rule::Info("maxmemory_policy", Some("volatile-lru")),
    ],
};

pub const REDIS_ENTERPRISE: Product = Product {
    name: "Redis Enterprise, Azure Managed Redis",
    // "Most multi-key commands are not allowed across slots", and all keys of a script are of one slot: "Database clustering",
    // https://redis.io/docs/latest/operate/rs/databases/durability-ha/clustering/
    behind: Behind::AllSlots,
    rules: &[
        // ROLE, DEBUG: "Server management commands compatibility",
        // https://redis.io/docs/latest/operate/rs/references/compatibility/commands/server/
        Rule::Answer("role", UNKNOWN),
        Rule::Answer("debug", UNKNOWN),
        // WAIT, in Redis Cloud: "Key commands compatibility",
        // https://redis.io/docs/latest/operate/rs/references/compatibility/commands/generic/
        Rule::Answer("wait", UNKNOWN),
        // RESTORE, in Active-Active databases: the same page.
        Rule::Restore(|_| Restored::Refused("-ERR command is not supported in Active-Active databases")),
        // ASKING: "Cluster management commands compatibility",
        // https://redis.io/docs/latest/operate/rs/references/compatibility/commands/cluster/
        Rule::Answer("asking", UNKNOWN),
        // "CONFIG GET or CONFIG SET with unsupported configuration settings returns an error",
        // https://redis.io/docs/latest/operate/rs/references/compatibility/config-settings/
        Rule::Answer("config", "-ERR unsupported CONFIG parameter"),
        // "INFO returns a different set of fields than Redis Open Source": the page on server management above.
        Rule::Info("maxmemory_policy", None),
    ],
};

pub const MEMORYDB: Product = Product {
    name: "MemoryDB",
    behind: Behind::AllSlots,
    rules: &[
        // "Restricted commands", https://docs.aws.amazon.com/memorydb/latest/devguide/restrictedcommands.html
        Rule::Answer("config", UNKNOWN),
        Rule::Answer("debug", UNKNOWN),
        Rule::Answer("acl setuser", NO_SUCH_SUBCOMMAND),
        Rule::Answer("migrate", UNKNOWN),
        Rule::Answer("replicaof", UNKNOWN),
    ],
};

pub const MEMORYSTORE: Product = Product {
    name: "Memorystore for Redis",
    behind: Behind::OneServer,
    rules: &[
        // "Blocked Redis commands" of "Product constraints", https://cloud.google.com/memorystore/docs/redis/product-constraints
        Rule::Answer("acl", UNKNOWN),
        Rule::Answer("client", UNKNOWN),
        Rule::Answer("cluster", UNKNOWN),
        Rule::Answer("command", UNKNOWN),
        Rule::Answer("config", UNKNOWN),
        Rule::Answer("debug", UNKNOWN),
        Rule::Answer("monitor", UNKNOWN),
        Rule::Answer("object", UNKNOWN),
        Rule::Answer("replicaof", UNKNOWN),
    ],
};

pub const KVROCKS: Product = Product {
    name: "Kvrocks",
    behind: Behind::OneServer,
    rules: &[
        // `src/commands` of apache/kvrocks registers no such command.
        Rule::Answer("wait", "-ERR unknown command"),
        // CommandRestore::Execute in `src/commands/cmd_server.cc`.
        Rule::Reword("-BUSYKEY", "-ERR target key name already exists."),
        // Server::GetRoleInfo in `src/server/server.cc`: two elements where there are no replicas.
        Rule::Role("*2\r\n$6\r\nmaster\r\n$1\r\n0\r\n"),
        // Server::GetServerInfo in `src/server/server.cc`: the version is that of the protocol, and two fields are missing.
        Rule::Info("redis_version", Some("4.0.0\r\nkvrocks_version:2.9.0")),
        Rule::Info("run_id", None),
        Rule::Info("maxmemory_policy", None),
    ],
};

pub const DRAGONFLY: Product = Product {
    name: "Dragonfly",
    behind: Behind::OneServer,
    rules: &[
        // CheckKeysDeclared in `src/server/main_service.cc` of dragonflydb/dragonfly, kUndeclaredKeyErr in `src/facade/error.h`.
        Rule::Declared("-ERR script tried accessing undeclared key"),
        // ServerFamily::Role in `src/server/server_family.cc`: a master's array has two elements.
        Rule::Role("*2\r\n$6\r\nmaster\r\n*0\r\n"),
        // ServerFamily::FormatInfoMetrics in the same file; `eviction` with --cache_mode.
        Rule::Info("run_id", None),
        Rule::Info("maxmemory_policy", Some("eviction")),
    ],
};

pub const GARNET: Product = Product {
    name: "Garnet",
    behind: Behind::OneServer,
    rules: &[
        // NetworkRESTORE in `libs/server/Resp/KeyAdminCommands.cs` of microsoft/garnet reads the first byte of any payload, and
        // takes strings alone.
        Rule::Restore(|payload| match payload.first() {
            None => Restored::Crashed,
            Some(0) => Restored::AsRedis,
            Some(_) => Restored::Refused("-ERR RESTORE currently only supports string types"),
        }),
        // WAIT, PUBSUB SHARDNUMSUB: `website/docs/commands/api-compatibility.md`.
        Rule::Answer("wait", UNKNOWN),
        Rule::Answer("pubsub shardnumsub", NO_SUCH_SUBCOMMAND),
        // GarnetInfoMetrics in `libs/server/Metrics/Info`.
        Rule::Info("maxmemory_policy", None),
    ],
};

/// A server that behaves like a product, for as long as this lives.
pub struct ProductServer {
    pub product: Product,
    backend: Backend,
    fronts: Vec<u16>,
    /// For each front a sentinel, which names it as the master of `orders`, whatever it is asked.
    sentinels: Vec<u16>,
    links: Arc<AtomicUsize>,
    asked: RequestLog,
    _tasks: JoinSet<()>,
}

/// The first words of all requests so far, in lower case.
type RequestLog = Arc<std::sync::Mutex<Vec<String>>>;

enum Backend {
    One(Server),
    Cluster(Cluster),
}

/// The number of addresses of the one server: as many as a red lock needs.
const FRONTS: usize = 3;

impl ProductServer {
    pub async fn start(product: Product) -> Self {
        let backend = match product.behind {
            Behind::OneServer => Backend::One(Server::unrestricted()),
            Behind::AllSlots => Backend::Cluster(Cluster::start(1, 0)),
        };
        let mut this = Self {
            product,
            backend,
            fronts: Vec::new(),
            sentinels: Vec::new(),
            links: Arc::default(),
            asked: Arc::default(),
            _tasks: JoinSet::new(),
        };
        for _ in 0..FRONTS {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            let port = listener.local_addr().expect("it is bound").port();
            this.fronts.push(port);
            let (links, asked) = (this.links.clone(), this.asked.clone());
            this._tasks.spawn(accept(listener, port, this.server().port(), product, links, asked));
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            this.sentinels.push(listener.local_addr().expect("it is bound").port());
            this._tasks.spawn(name_master(listener, port));
        }
        this
    }

    pub fn server(&self) -> &Server {
        match &self.backend {
            Backend::One(server) => server,
            Backend::Cluster(cluster) => &cluster.masters[0],
        }
    }

    /// `scheme` is `redis-sentinel`, or one that takes the server's own host.
    pub fn url(&self, scheme: &str) -> String {
        self.urls(scheme).next().expect("there is a front")
    }

    /// The URL of each address of the server.
    fn urls(&self, scheme: &str) -> impl Iterator<Item = String> {
        self.fronts.iter().zip(&self.sentinels).map(move |(front, sentinel)| match scheme {
            "redis-sentinel" => format!("redis-sentinel://127.0.0.1:{sentinel}/0#orders"),
            _ => format!("{scheme}://127.0.0.1:{front}"),
        })
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.fronts[0])
    }

    /// One client for each address.
    pub async fn clients(&self, scheme: &str, builder: redisson_lock::ClientBuilder) -> Vec<Client> {
        let mut clients = Vec::new();
        for url in self.urls(scheme) {
            clients.push(builder.clone().connect(url).await.expect("the product accepts clients"));
        }
        clients
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.links.load(Ordering::SeqCst)
    }

    /// The number of requests so far that begin with this word, which is in lower case.
    pub fn asked(&self, word: &str) -> usize {
        self.asked.lock().expect("the mutex is not poisoned").iter().filter(|said| *said == word).count()
    }

    /// Has the server close all connections.
    pub fn cut(&self) {
        redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "normal"])
            .exec(&mut self.server().cli())
            .expect("CLIENT KILL");
    }
}

/// Serves as a sentinel that names the server at this port.
async fn name_master(listener: TcpListener, port: u16) {
    let fields = ["ip", "127.0.0.1", "port", &port.to_string(), "config-epoch", "1"];
    let mut answer = format!("*{}\r\n", fields.len());
    fields.iter().for_each(|field| answer += &format!("${}\r\n{field}\r\n", field.len()));
    let mut asked = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.expect("the listener is ours");
        let answer = answer.clone();
        asked.spawn(async move {
            let mut client = FrameSocket::new(client);
            while client.frame().await.is_some() {
                if client.socket.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn accept(
    listener: TcpListener,
    port: u16,
    backend: u16,
    product: Product,
    links: Arc<AtomicUsize>,
    asked: RequestLog,
) {
    let mut serving = JoinSet::new();
    let admin = Arc::new(Mutex::new(FrameSocket::to(backend).await));
    loop {
        let (client, _) = listener.accept().await.expect("the listener is ours");
        client.set_nodelay(true).expect("the socket is open");
        let number = links.fetch_add(1, Ordering::SeqCst);
        let user = format!("front-{port}-{number}");
        let (admin, asked) = (admin.clone(), asked.clone());
        serving.spawn(Front { product, port, user, backend, admin, asked }.serve(client));
    }
}

/// A socket that is read frame by frame.
struct FrameSocket {
    socket: TcpStream,
    unread: Vec<u8>,
}

impl FrameSocket {
    fn new(socket: TcpStream) -> Self {
        Self { socket, unread: Vec::new() }
    }

    async fn to(port: u16) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", port)).await.expect("the server is up");
        socket.set_nodelay(true).expect("the socket is open");
        Self::new(socket)
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = frame(&self.unread) {
                return Some(self.unread.drain(..length).collect());
            }
            if self.socket.read_buf(&mut self.unread).await.ok()? == 0 {
                return None;
            }
        }
    }

    async fn ask(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        self.socket.write_all(request).await.ok()?;
        self.frame().await
    }

    async fn say(&mut self, words: &[&[u8]]) -> Option<Vec<u8>> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).into_bytes());
            request.extend(*word);
            request.extend(b"\r\n");
        }
        self.ask(&request).await
    }
}

/// One connection of a client.
struct Front {
    product: Product,
    port: u16,
    /// The user of the connection at the server. Its rights limit scripts.
    user: String,
    backend: u16,
    admin: Arc<Mutex<FrameSocket>>,
    asked: RequestLog,
}

impl Front {
    async fn serve(self, client: TcpStream) {
        let (mut client, mut server) = (FrameSocket::new(client), FrameSocket::to(self.backend).await);
        let declared = self.product.rules.iter().find_map(|rule| match rule {
            Rule::Declared(error) => Some(*error),
            _ => None,
        });
        if declared.is_some() {
            self.may(&[b"reset", b"on", b"nopass", b"+@all", b"~*", b"&*"]).await;
            server.say(&[b"AUTH", self.user.as_bytes(), b"any"]).await.expect("the user exists");
        }
        while let Some(request) = client.frame().await {
            let words = words(&request);
            let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
            let said = String::from_utf8_lossy(&words[0]).to_lowercase();
            self.asked.lock().expect("the mutex is not poisoned").push(said);
            if is("subscribe") || is("ssubscribe") {
                // From here on, the server also sends without a request.
                let begun = server.socket.write_all(&request).await.is_ok()
                    && server.socket.write_all(&client.unread).await.is_ok();
                if begun {
                    let _ = copy_bidirectional(&mut client.socket, &mut server.socket).await;
                }
                return;
            }
            let answer = match self.answer(&words) {
                Some(Ok(answer)) => Some(answer),
                Some(Err(Crash)) => return,
                None if declared.is_some() && (is("eval") || is("evalsha")) => {
                    self.watched(&words, &request, &mut server).await
                }
                None => server.ask(&request).await,
            };
            let Some(answer) = answer.map(|answer| self.altered(&words, answer, declared)) else { return };
            if client.socket.write_all(&answer).await.is_err() {
                return;
            }
        }
    }

    /// The front's own reply, if it has one.
    fn answer(&self, words: &Words) -> Option<Result<Vec<u8>, Crash>> {
        let said: Vec<String> =
            words.iter().take(2).map(|word| String::from_utf8_lossy(word).to_lowercase()).collect();
        for rule in self.product.rules {
            match rule {
                Rule::Answer(name, line) if said[0] == *name || said.join(" ") == *name => {
                    return Some(Ok(format!("{line}\r\n").into_bytes()));
                }
                Rule::Restore(judge) if said[0] == "restore" => match judge(&words[3]) {
                    Restored::AsRedis => {}
                    Restored::Refused(line) => return Some(Ok(format!("{line}\r\n").into_bytes())),
                    Restored::Crashed => return Some(Err(Crash)),
                },
                Rule::Role(answer) if said[0] == "role" => return Some(Ok(answer.as_bytes().to_vec())),
                _ => {}
            }
        }
        // The node knows its own address, and not that of the front.
        (said.join(" ") == "cluster slots" && self.product.behind == Behind::AllSlots).then(|| {
            Ok(format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{}\r\n", self.port)
                .into_bytes())
        })
    }

    /// The server's reply, as the product gives it.
    fn altered(&self, words: &Words, answer: Vec<u8>, declared: Option<&str>) -> Vec<u8> {
        let mut answer = answer;
        if answer.starts_with(b"-") {
            let text = String::from_utf8_lossy(&answer).into_owned();
            for rule in self.product.rules {
                if let Rule::Reword(from, to) = rule
                    && text.starts_with(from)
                {
                    return format!("{to}\r\n").into_bytes();
                }
            }
            // The errors of a script that exceeds its user's rights, up to 7.0 and from 7.2 on.
            let beyond = ["can't access at least one of the keys", "o permissions to access a key"];
            if let Some(error) = declared
                && beyond.iter().any(|said| text.contains(said))
            {
                return format!("{error}\r\n").into_bytes();
            }
        }
        if words[0].eq_ignore_ascii_case(b"info") && answer.starts_with(b"$") {
            let text = String::from_utf8(answer).expect("INFO is text");
            let body = text.split_once("\r\n").expect("a length comes first").1;
            let lines = body.split("\r\n").filter_map(|line| {
                let field = line.split(':').next().unwrap_or_default();
                let said = self.product.rules.iter().find_map(|rule| match rule {
                    Rule::Info(name, value) if *name == field => Some(value),
                    _ => None,
                });
                match said {
                    None => Some(line.to_owned()),
                    Some(value) => value.map(|value| format!("{field}:{value}")),
                }
            });
            let body = lines.collect::<Vec<_>>().join("\r\n");
            let body = body.trim_end();
            answer = format!("${}\r\n{body}\r\n", body.len()).into_bytes();
        }
        answer
    }

    /// Has the server itself refuse the script every key that it did not declare.
    async fn watched(&self, words: &Words, request: &[u8], server: &mut FrameSocket) -> Option<Vec<u8>> {
        let count: usize =
            std::str::from_utf8(&words[2]).expect("a number is text").parse().expect("a number");
        let keys: Vec<Vec<u8>> = words[3..3 + count].iter().map(|key| pattern(key)).collect();
        let mut rights: Vec<&[u8]> = vec![b"resetkeys"];
        rights.extend(keys.iter().map(Vec::as_slice));
        self.may(&rights).await;
        let answer = server.ask(request).await;
        self.may(&[b"~*"]).await;
        answer
    }

    async fn may(&self, rights: &[&[u8]]) {
        let words: Vec<&[u8]> = [b"ACL".as_slice(), b"SETUSER", self.user.as_bytes()]
            .into_iter()
            .chain(rights.iter().copied())
            .collect();
        let answer = self.admin.lock().await.say(&words).await.expect("the server is up");
        assert_eq!(answer, b"+OK\r\n", "{}", String::from_utf8_lossy(&answer));
    }
}

struct Crash;

/// The pattern that matches only this key.
fn pattern(key: &[u8]) -> Vec<u8> {
    let mut pattern = vec![b'~'];
    for &byte in key {
        if b"*?[]\\".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern
}
