//! The paths of a hold that no request goes over, with what they allocate. Built with `--cfg measuring`.

use divan::{AllocProfiler, Bencher};
use redisson_lock::measuring::{Registry, Watched, names, requests};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// A handle's keys, with the channel.
#[divan::bench]
fn key_building() -> usize {
    names(divan::black_box("myapp:orders:4711"))
}

/// An acquire and a release, as they are written to the socket.
#[divan::bench]
fn request_building() -> usize {
    requests(divan::black_box("myapp:orders:4711"))
}

/// A subscription that comes and goes beside so many others.
#[divan::bench(args = [0, 10_000])]
fn registry(bencher: Bencher, others: usize) {
    let registry = Registry::new(others);
    bencher.bench(|| registry.pass());
}

/// A hold that ends before its first renewal, beside so many that are renewed.
#[divan::bench(args = [0, 1_000, 100_000, 1_000_000])]
fn hold_table(bencher: Bencher, others: usize) {
    let watched = Watched::new(others);
    bencher.bench(|| watched.pass());
}
