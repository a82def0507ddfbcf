//! The spans and events for traces. Their names and fields are stable: docs/observability.md describes them, and `tests/it/traces.rs` checks
//! them.
//!
//! Nothing is computed for a span that nobody records: the macros read their fields only then, and the functions return at once for a
//! disabled span.

use crate::connection::Connection;
use crate::error::{Error, LossReason};
use crate::kinds::kind::LockKind;
use crate::observer::{CallEnd, Way};
use crate::stats::End;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tracing::field::{Empty, display};
use tracing::{Span, debug, debug_span};

/// A target of its own, so that a filter may select these spans and no other logs.
const TARGET: &str = "redisson_lock::trace";

/// A call from its begin to its end. `owner` is called if somebody records the span.
pub(crate) fn acquire(
    connection: &Connection,
    kind: &dyn LockKind,
    owner: impl FnOnce() -> Arc<str>,
) -> Span {
    let span = debug_span!(
        target: TARGET,
        "redisson_lock.acquire",
        lock = &**kind.record(),
        kind = kind.traits().name,
        owner = Empty,
        waited = Empty,
        attempts = Empty,
        outcome = Empty,
        db.system.name = "redis",
        db.operation.name = "acquire",
        server.address = Empty,
        server.port = Empty,
        error.type = Empty,
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
    );
    if !span.is_disabled() {
        span.record("owner", &*owner());
        let node = connection.node_of(kind.record());
        match node.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?))) {
            Some((host, port)) => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                span.record("server.address", host).record("server.port", i64::from(port));
            }
            None => drop(span.record("server.address", &*node)),
        }
    }
    span
}

/// Notes the success of a call.
pub(crate) fn acquired(span: &Span, owner: &str, way: Way, attempts: u32, took: impl FnOnce() -> Duration) {
    if span.is_disabled() {
        return;
    }
    let outcome = match way {
        Way::ReEntered => "re_entered",
        Way::Directly | Way::AfterWait | Way::HandedOver => "acquired",
    };
    span.record("waited", took().as_secs_f64())
        .record("attempts", i64::from(attempts))
        .record("outcome", outcome);
    debug!(target: TARGET, parent: span, owner, way = %way, "acquired");
}

/// Notes the end of a call without the lock.
pub(crate) fn not_acquired(span: &Span, end: CallEnd, took: impl FnOnce() -> Duration) {
    if !span.is_disabled() {
        span.record("waited", took().as_secs_f64()).record("outcome", end.label());
    }
}

/// Notes the error of a call.
pub(crate) fn failed(span: &Span, error: &Error) {
    if !span.is_disabled() {
        // The name of the variant.
        let debug = format!("{error:?}");
        let variant = debug.split(|sign: char| !sign.is_alphanumeric()).next().unwrap_or_default();
        mark_failed(span, variant, error);
    }
}

fn mark_failed(span: &Span, kind: impl Display, description: impl Display) {
    span.record("error.type", display(kind))
        .record("otel.status_code", "ERROR")
        .record("otel.status_description", display(description));
}

/// The part of a call in which it waits, within the span of the call. `None` if nobody records it. Boxed, because a program may have many
/// waiters.
pub(crate) fn wait(kind: &dyn LockKind, owner: impl FnOnce() -> Arc<str>) -> Option<Box<Span>> {
    let span = debug_span!(
        target: TARGET,
        "redisson_lock.wait",
        lock = &**kind.record(),
        kind = kind.traits().name,
        owner = Empty
    );
    (!span.is_disabled()).then(|| {
        span.record("owner", &*owner());
        Box::new(span)
    })
}

/// A hold from its grant to its end, beside the span of its call.
pub(crate) fn hold(
    kind: &dyn LockKind,
    owner: &str,
    number: u64,
    token: impl FnOnce() -> Option<u64>,
    call: &Span,
) -> Span {
    let span = debug_span!(
        target: TARGET,
        "redisson_lock.hold",
        lock = &**kind.record(),
        kind = kind.traits().name,
        owner,
        hold = signed(number),
        token = Empty,
        held = Empty,
        end = Empty,
        reason = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
    );
    if !span.is_disabled() {
        span.follows_from(call);
        if let Some(token) = token() {
            span.record("token", signed(token));
        }
    }
    span
}

/// OpenTelemetry has signed integers only. Its layer for `tracing` turns others into text.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Notes the end of a hold.
pub(super) fn ended(span: &Span, end: End, held: Duration) {
    span.record("held", held.as_secs_f64()).record("end", end.label());
    if let End::Lost(reason) = end {
        lost(span, reason);
    }
}

fn lost(span: &Span, reason: LossReason) {
    span.record("reason", reason.label())
        .record("otel.status_code", "ERROR")
        .record("otel.status_description", display(reason));
    debug!(target: TARGET, parent: span, reason = reason.label(), "lost");
}

/// Notes a renewal of a hold, when `left` of its lease were left.
pub(super) fn renewed(span: &Span, lease: Duration, left: Duration) {
    debug!(target: TARGET, parent: span, lease = lease.as_secs_f64(), left = left.as_secs_f64(), "renewed");
}
