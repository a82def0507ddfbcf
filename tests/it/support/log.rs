//! The log of the library on this thread, for tests whose runtime has one thread.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;

/// Collects the warnings of this thread for as long as it lives.
pub struct WarningLog {
    written: Written,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("the mutex is not poisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WarningLog {
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

    /// The lines that contain this text.
    pub fn lines(&self, text: &str) -> Vec<String> {
        let written = self.written.0.lock().expect("the mutex is not poisoned");
        let all = String::from_utf8_lossy(&written);
        all.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}
