//! Redisson's configuration file is understood or refused, never a panic, in bounded time and memory; and nothing shows a
//! password of it.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| redisson_lock::fuzzing::configuration(text));
