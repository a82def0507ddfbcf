//! Passwords that must not appear anywhere. The suite uses them wherever it needs a password. Everything that the
//! library logs in this process, at any level, is searched for them, and the run ends at the first line that has one.
//! Tests search errors and Debug output themselves ([`assert_no_canary`]).

use std::fmt::{Debug, Display};
use std::io::{self, Write};
use std::process;
use std::sync::{Arc, Mutex, Once};

use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// Letters and signs that are the same in a URL, in YAML and in an ACL rule.
pub const CANARY: &str = "canary-in-a-coal-mine";

/// A second password, for tests that must tell which of two passwords a server received. Neither contains the other.
pub const SENTINEL_CANARY: &str = "canary-of-the-sentinels";

fn has_canary(text: &str) -> bool {
    [CANARY, SENTINEL_CANARY].iter().any(|canary| text.contains(canary))
}

/// Searches everything that is logged from here on. Every function that starts a server for a test calls this.
pub fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let subscriber = subscriber(|| Searched);
        tracing::subscriber::set_global_default(subscriber).expect("the suite has one subscriber");
    });
}

/// Ends the run if `line` has a canary. `place` says where it was found.
pub fn search(place: &str, line: &str) {
    if has_canary(line) {
        // The harness captures the output of the print macros. The second line looks like that of a failed test.
        let _ = writeln!(io::stderr(), "\nA PASSWORD LEAKED: a canary is in {place}:\n{line}");
        let _ = writeln!(io::stdout(), "\ntest support::canary ... FAILED");
        process::exit(101);
    }
}

/// Checks the error as users and logs see it.
#[track_caller]
pub fn assert_no_canary(error: &(impl Debug + Display)) {
    let texts = format!("{error} {error:?} {error:#?}");
    assert!(!has_canary(&texts), "a password leaked: {texts}");
}

/// Checks Debug output, on one line and on several.
#[track_caller]
pub fn assert_no_canary_in_debug(shown: &impl Debug) {
    let texts = format!("{shown:?} {shown:#?}");
    assert!(!has_canary(&texts), "a password leaked: {texts}");
}

/// Captures the log of this thread for as long as it lives, and replaces the search.
pub struct CapturedLog {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

impl CapturedLog {
    pub fn capture() -> Self {
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let written = text.clone();
        let subscriber = subscriber(move || Kept(written.clone()));
        Self { text, _guard: tracing::subscriber::set_default(subscriber) }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }
}

fn subscriber(
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> impl tracing::Subscriber + Send + Sync {
    tracing_subscriber::fmt().with_max_level(Level::TRACE).with_ansi(false).with_writer(writer).finish()
}

struct Searched;

impl Write for Searched {
    /// The subscriber writes one line at a time.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        search("a log line", &String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
