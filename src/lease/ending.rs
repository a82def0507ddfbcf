//! The end of a hold, on its way to the observers.

use crate::stats::{Counters, End};
use std::sync::Arc;
use std::time::Duration;
use tracing::Span;

/// The end of a hold, which is counted. It is empty without an observer and a span.
#[must_use = "the observers learn of the end by `Hold::report`"]
#[derive(Default)]
pub(crate) struct Ending(pub(super) Option<Unreported>);

pub(super) struct Unreported {
    pub counters: Arc<Counters>,
    pub end: End,
    pub held: Duration,
    /// The span of the hold, if somebody records it.
    pub span: Option<Span>,
}

impl Ending {
    /// The end of a hold that `counters` has counted.
    pub(super) fn new(counters: &Arc<Counters>, end: End, held: Duration, span: Option<Span>) -> Self {
        let is_seen = !counters.observers.is_empty() || span.is_some();
        Self(is_seen.then(|| Unreported { counters: counters.clone(), end, held, span }))
    }
}
