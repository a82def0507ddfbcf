//! What the library says by `tracing`, on this thread: for tests whose runtime is of one thread.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;

/// The warnings from its start to its end.
pub struct Log {
    written: Written,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics with the lock").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub fn start() -> Self {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(LevelFilter::WARN)
            .with_writer(move || writer.clone())
            .finish();
        Self { written, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The lines that have this text.
    pub fn lines(&self, text: &str) -> Vec<String> {
        let written = self.written.0.lock().expect("nobody panics with the lock");
        let all = String::from_utf8_lossy(&written);
        all.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}
