//! Single requests, which pass by the key queues: queries, and the changes of semaphores and latches that hold nothing.

use crate::engine::session::Session;
use crate::error::{Error, Phase, Result};
use crate::owner::entered;
use crate::protocol::script::{Reply, Request, Undecodable};

impl Session {
    /// Fails where no query can be sent: outside a tokio runtime, in a forked child process, and once the client is closed.
    pub(crate) fn check_readable(&self) -> Result<()> {
        entered()?;
        self.check_open(Phase::Inspect)
    }

    /// Sends a request that is harmless to repeat.
    pub(crate) async fn inspect<T>(
        &self,
        request: Request,
        decoded: impl FnOnce(&Reply) -> Result<T, Undecodable>,
    ) -> Result<T> {
        entered()?;
        self.check_process()?;
        self.connection.ask(request, decoded, Phase::Inspect).await
    }

    /// Sends a request that must not take effect twice. Without a reply, its effect is unknown, and the error says so.
    pub(crate) async fn ask_once<T>(
        &self,
        mut request: Request,
        decoded: impl FnOnce(&Reply) -> Result<T, Undecodable>,
        phase: Phase,
    ) -> Result<T> {
        entered()?;
        self.check_process()?;
        match self.connection.call(&mut request).await {
            Ok(answer) => decoded(&answer.reply).map_err(|_| self.connection.protocol_error(phase)),
            Err(failure) if failure.unanswered => {
                Err(Error::Ambiguous { phase, node: self.connection.node().into() })
            }
            Err(failure) => Err(self.connection.error(failure, phase)),
        }
    }
}
