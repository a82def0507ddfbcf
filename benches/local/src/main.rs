//! Benchmarks of the code that sends no request, with its allocations. Built with `--cfg measuring`.

use divan::{AllocProfiler, Bencher};
use redisson_lock::measuring::{Registry, Watched, names, requests};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// The keys of a handle, and the channel.
#[divan::bench]
fn key_building() -> usize {
    names(divan::black_box("myapp:orders:4711"))
}

/// An acquire and a release, as written to the socket.
#[divan::bench]
fn request_building() -> usize {
    requests(divan::black_box("myapp:orders:4711"))
}

/// A subscription that is added and removed, next to `others` others.
#[divan::bench(args = [0, 10_000])]
fn registry(bencher: Bencher, others: usize) {
    let registry = Registry::new(others);
    bencher.bench(|| registry.pass());
}

/// A hold that ends before its first renewal, next to `others` renewed holds.
#[divan::bench(args = [0, 1_000, 100_000, 1_000_000])]
fn hold_table(bencher: Bencher, others: usize) {
    let watched = Watched::new(others);
    bencher.bench(|| watched.pass());
}
