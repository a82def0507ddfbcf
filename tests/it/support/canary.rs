//! A password that must turn up nowhere. The suite uses it wherever it uses a password, and whatever the library logs in this
//! process, at any level, is searched for it: the whole run ends at the first line that has it. Errors and Debug output are
//! searched where tests come by them ([`shows_no_canary`]).

use std::fmt::{Debug, Display};
use std::io::{self, Write};
use std::process;
use std::sync::{Arc, Mutex, Once};

use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// Letters and signs that are the same in a URL, in YAML and in an ACL rule.
pub const CANARY: &str = "canary-in-a-coal-mine";

/// Searches what is logged from here on. Whatever starts a server for a test calls it.
pub fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let subscriber = subscriber(|| Searched);
        tracing::subscriber::set_global_default(subscriber).expect("the suite has one subscriber");
    });
}

/// Ends the run if `line` has the canary. `place` is where it was found.
pub fn search(place: &str, line: &str) {
    if line.contains(CANARY) {
        // The test harness keeps back what is printed by the macros. The second line is as it has those of failed tests.
        let _ = writeln!(io::stderr(), "\nA PASSWORD LEAKED: the canary is in {place}:\n{line}");
        let _ = writeln!(io::stdout(), "\ntest support::canary ... FAILED");
        process::exit(101);
    }
}

/// The error as users and logs see it.
#[track_caller]
pub fn shows_no_canary(error: &(impl Debug + Display)) {
    let texts = format!("{error} {error:?} {error:#?}");
    assert!(!texts.contains(CANARY), "a password leaked: {texts}");
}

/// Debug output, on one line and on several.
#[track_caller]
pub fn debugs_no_canary(shown: &impl Debug) {
    let texts = format!("{shown:?} {shown:#?}");
    assert!(!texts.contains(CANARY), "a password leaked: {texts}");
}

/// What is logged on this thread, in the place of the search, for as long as this lives.
pub struct Log {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

impl Log {
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
    /// A line at a time, as the subscriber writes it.
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
