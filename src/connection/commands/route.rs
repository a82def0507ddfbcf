//! A request that a caller sends once. Without an answer, the caller decides how to go on.

use super::Answer;
use crate::connection::exchange::{Exchange, NoReply};
use crate::connection::node::Live;
use crate::connection::pulse::Cut;
use crate::connection::{ErrorClass, classify};
use crate::protocol::script::Request;
use crate::runtime::clock::Moment;
use std::sync::Arc;

/// Why a request that was sent once has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The request did not run.
    NotDone,
    /// The request may have run, or may still run.
    Unanswered,
}

/// A connection that is up, over which a caller sends a request itself.
pub(crate) struct Route(pub(super) Arc<Live>);

/// A request that was sent once, and its answer. If it went unanswered, the next send is a repeat.
pub(crate) struct Sent {
    pub request: Request,
    pub answer: Result<Answer, SendError>,
}

impl Route {
    /// The number of the connection.
    pub(crate) fn connection_id(&self) -> u64 {
        self.0.id
    }

    /// Sends `request` once. A fast path that does nothing is followed by the script. `None` if no reply comes before `until`. No
    /// send begins after that, however late the caller is polled.
    pub(crate) async fn send(self, request: Request, until: Moment) -> Option<Sent> {
        let mut exchange = Exchange::new(self.0, request);
        loop {
            let sent = Moment::now();
            if sent >= until {
                return None;
            }
            let answer;
            (exchange, answer) = exchange.send(sent, until).await;
            let answer = match answer {
                Ok(Some(reply)) => Ok(Answer::of(reply, sent, &exchange.live)),
                Ok(None) => {
                    exchange.request.go_by_script();
                    continue;
                }
                Err(NoReply::Cut(Cut::Ended)) => Err(SendError::Unanswered),
                Err(NoReply::Cut(Cut::Late)) => return None,
                Err(NoReply::Failed(error)) => match classify(&error) {
                    ErrorClass::NoScript => {
                        exchange.by_source = true;
                        continue;
                    }
                    ErrorClass::Unknown { .. } => Err(SendError::Unanswered),
                    _ => Err(SendError::NotDone),
                },
            };
            if answer.as_ref().is_err_and(|error| *error == SendError::Unanswered) {
                exchange.request.repeat(sent);
            }
            return Some(Sent { request: exchange.request, answer });
        }
    }
}
