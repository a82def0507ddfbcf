#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| redisson_lock_fuzz::replies(input));
