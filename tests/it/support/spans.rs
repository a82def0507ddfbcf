//! Records the spans and events of the library's traces on this thread, for tests whose runtime has one thread.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// The target of the spans, which docs/observability.md names.
const TARGET: &str = "redisson_lock::trace";

/// A span, with the values of its fields and its events as text.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    id: u64,
    pub name: &'static str,
    /// The names of all fields, also of those without a value.
    pub declared: Vec<&'static str>,
    pub fields: BTreeMap<&'static str, String>,
    /// The name of the parent.
    pub parent: Option<&'static str>,
    /// The span that it follows from.
    pub follows: Option<&'static str>,
    /// The message of each event, and its other fields.
    pub events: Vec<BTreeMap<&'static str, String>>,
    pub closed: bool,
}

impl Recorded {
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Recorded>>>);

/// The spans of this thread for as long as it lives.
pub struct Spans {
    recorder: Recorder,
    _guard: DefaultGuard,
}

impl Spans {
    pub fn record() -> Self {
        let recorder = Recorder::default();
        let subscriber = Registry::default().with(recorder.clone());
        Self { recorder, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// Removes and returns the spans of this name that are closed.
    pub fn take(&self, name: &str) -> Vec<Recorded> {
        let mut spans = self.recorder.0.lock().expect("the mutex is not poisoned");
        spans.extract_if(.., |span| span.name == name && span.closed).collect()
    }

    /// The only closed span of this name.
    #[track_caller]
    pub fn only(&self, name: &str) -> Recorded {
        let mut taken = self.take(name);
        assert_eq!(taken.len(), 1, "{taken:#?}");
        taken.remove(0)
    }
}

impl Recorder {
    fn change(&self, id: &Id, change: impl FnOnce(&mut Recorded)) {
        let mut spans = self.0.lock().expect("the mutex is not poisoned");
        // An id is used again once its span is closed.
        if let Some(span) = spans.iter_mut().rev().find(|span| span.id == id.into_u64() && !span.closed) {
            change(span);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target() == TARGET || metadata.name() == "caller"
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = attributes.metadata();
        assert_eq!(*metadata.level(), Level::DEBUG);
        let mut fields = Values::default();
        attributes.record(&mut fields);
        let span = context.span(id).expect("the registry has the span");
        self.0.lock().expect("the mutex is not poisoned").push(Recorded {
            id: id.into_u64(),
            name: metadata.name(),
            declared: metadata.fields().iter().map(|field| field.name()).collect(),
            fields: fields.0,
            parent: span.parent().map(|parent| parent.name()),
            ..Recorded::default()
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.change(id, |span| {
            let mut more = Values::default();
            values.record(&mut more);
            span.fields.append(&mut more.0);
        });
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, context: Context<'_, S>) {
        let follows = context.span(follows).map(|span| span.name());
        self.change(id, |span| span.follows = follows);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Values::default();
        event.record(&mut fields);
        let span = context.event_span(event).expect("each event is in a span");
        self.change(&span.id(), |span| span.events.push(fields.0));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.change(&id, |span| span.closed = true);
    }
}

#[derive(Default)]
struct Values(BTreeMap<&'static str, String>);

impl Visit for Values {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
