//! A worker whose lock calls are part of its callers' traces. See README.md.

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use redisson_lock::{Client, Result};
use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tracing::{Instrument, Level, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    // A service would export by OTLP to a collector.
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(opentelemetry_stdout::SpanExporter::default())
        .build();
    let selected = Targets::new()
        .with_target("redisson_lock::trace", Level::DEBUG)
        .with_target("traced_orders", Level::INFO);
    let layer = tracing_opentelemetry::layer().with_location(false).with_threads(false);
    let layer = layer.with_tracked_inactivity(false).with_tracer(provider.tracer("traced-orders"));
    tracing_subscriber::registry().with(layer.with_filter(selected)).init();

    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let client = Client::connect(url.as_str()).await?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let (order, parent) = line.split_once(' ').unwrap_or((&line, ""));
        let span = info_span!("order", order, shipped = tracing::field::Empty);
        // The caller's span, as HTTP services pass it in the header `traceparent`.
        let headers = HashMap::from([("traceparent".to_owned(), parent.to_owned())]);
        span.set_parent(TraceContextPropagator::new().extract(&headers))?;
        let shipped = ship(&client, order).instrument(span.clone()).await;
        span.record("shipped", matches!(shipped, Ok(true)));
        if let Err(error) = shipped {
            eprintln!("order {order}: {error}");
        }
    }
    client.close().await;
    provider.shutdown()?;
    Ok(())
}

/// Returns false if another process has the order.
async fn ship(client: &Client, order: &str) -> Result<bool> {
    let mutex = client.mutex(format!("orders:{order}"));
    let Some(guard) = mutex.try_lock_for(Duration::from_secs(5)).await? else { return Ok(false) };
    async { tokio::time::sleep(Duration::from_millis(5)).await }.instrument(info_span!("pack")).await;
    guard.unlock().await?;
    Ok(true)
}
