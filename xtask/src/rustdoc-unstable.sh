#!/bin/sh
# rustdoc with unstable options. xtask/src/public_api.rs runs it.
RUSTC_BOOTSTRAP=1 exec "$REDISSON_LOCK_RUSTDOC" "$@"
