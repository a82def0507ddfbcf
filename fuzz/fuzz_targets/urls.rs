//! A URL is understood or refused, never a panic; and neither shows its password.

#![no_main]

libfuzzer_sys::fuzz_target!(|url: &str| redisson_lock::fuzzing::url(url));
