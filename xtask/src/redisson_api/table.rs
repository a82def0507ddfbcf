//! Redisson's methods, and the method here that replaces each. `tests/it/redisson_api.rs` compares the table with a real Redisson, and
//! `cargo xtask redisson-api` writes it to docs/migrating-from-redisson.md.
//!
//! A method whose name ends in `Async` has no row: every call here is async, and an `Owner` replaces the thread id.

/// The methods of some interfaces of Redisson.
pub struct Section {
    /// The interfaces that declare the methods. The first one names the block in the page.
    pub interfaces: &'static [&'static str],
    pub rows: &'static [Row],
}

pub struct Row {
    /// The methods, with the types and names of their parameters.
    pub java: &'static [&'static str],
    pub here: Here,
}

pub enum Here {
    /// Does the same.
    Mapped(&'static str),
    /// Nothing does the same, for this reason.
    LeftOut(&'static str),
}

const fn mapped(java: &'static [&'static str], here: &'static str) -> Row {
    Row { java, here: Here::Mapped(here) }
}

const fn left_out(java: &'static [&'static str], reason: &'static str) -> Row {
    Row { java, here: Here::LeftOut(reason) }
}

pub const SECTIONS: &[Section] = &[
    Section {
        interfaces: &["RLock", "Lock", "RObservable"],
        rows: &[
            mapped(&["lock()"], "`lock().await`"),
            mapped(&["lock(long leaseTime, TimeUnit unit)"], "`with_lease(lease).lock().await`"),
            mapped(&["lockInterruptibly()"], "`lock().await`; to interrupt it, drop the future"),
            mapped(
                &["lockInterruptibly(long leaseTime, TimeUnit unit)"],
                "`with_lease(lease).lock().await`; to interrupt it, drop the future",
            ),
            mapped(&["tryLock()"], "`try_lock().await`"),
            mapped(&["tryLock(long waitTime, TimeUnit unit)"], "`try_lock_for(wait).await`"),
            mapped(
                &["tryLock(long waitTime, long leaseTime, TimeUnit unit)"],
                "`with_lease(lease).try_lock_for(wait).await`",
            ),
            mapped(&["unlock()"], "`guard.unlock().await`, or drop the guard"),
            mapped(&["forceUnlock()"], "`force_unlock().await`"),
            mapped(&["isLocked()"], "`is_locked().await`"),
            mapped(&["isHeldByCurrentThread()"], "`is_held().await`; without I/O `guard.state()`"),
            mapped(
                &["isHeldByThread(long threadId)"],
                "`with_owner(&owner).is_held().await`, or `holder().await`",
            ),
            mapped(&["getHoldCount()"], "`hold_count().await`"),
            mapped(
                &["remainTimeToLive()"],
                "`remaining_lease().await`; for your own hold `guard.deadline()`",
            ),
            mapped(&["getName()"], "`lock.name()` or `guard.name()`, which return the mapped name"),
            left_out(&["newCondition()"], "Redisson does not support it either"),
            left_out(
                &["addListener(ObjectListener listener)", "removeListener(int listenerId)"],
                "listeners need keyspace notifications of the server; a guard reports its own hold by `status().states()`",
            ),
        ],
    },
    Section {
        interfaces: &["RFencedLock"],
        rows: &[
            mapped(&["lockAndGetToken()"], "`lock().await?`, then `guard.token()`"),
            mapped(
                &["lockAndGetToken(long leaseTime, TimeUnit unit)"],
                "`with_lease(lease).lock().await?`, then `guard.token()`",
            ),
            mapped(&["tryLockAndGetToken()"], "`try_lock().await?`, then `guard.token()`"),
            mapped(
                &["tryLockAndGetToken(long waitTime, TimeUnit unit)"],
                "`try_lock_for(wait).await?`, then `guard.token()`",
            ),
            mapped(
                &["tryLockAndGetToken(long waitTime, long leaseTime, TimeUnit unit)"],
                "`with_lease(lease).try_lock_for(wait).await?`, then `guard.token()`",
            ),
            mapped(&["getToken()"], "`guard.token()`: the token of this hold, not the latest one"),
        ],
    },
    Section {
        interfaces: &["RReadWriteLock", "ReadWriteLock"],
        rows: &[mapped(&["readLock()"], "`read()`"), mapped(&["writeLock()"], "`write()`")],
    },
    Section {
        interfaces: &["RSemaphore"],
        rows: &[
            mapped(&["trySetPermits(int permits)"], "`try_set_permits(n)`"),
            mapped(&["trySetPermits(int permits, Duration ttl)"], "`try_set_permits_for(n, time)`"),
            mapped(&["acquire()"], "`acquire()`"),
            mapped(&["acquire(int permits)"], "`acquire_many(n)`"),
            mapped(&["tryAcquire()"], "`try_acquire()`"),
            mapped(&["tryAcquire(int permits)"], "`try_acquire_many(n)`"),
            mapped(
                &["tryAcquire(Duration waitTime)", "tryAcquire(long waitTime, TimeUnit unit)"],
                "`try_acquire_for(wait)`",
            ),
            mapped(
                &[
                    "tryAcquire(int permits, Duration waitTime)",
                    "tryAcquire(int permits, long waitTime, TimeUnit unit)",
                ],
                "`try_acquire_many_for(n, wait)`",
            ),
            mapped(
                &["release()", "release(int permits)"],
                "`permit.release()`; without a permit `semaphore.release(n)`",
            ),
            mapped(&["releaseIfExists(int permits)"], "`release_if_exists(n)`"),
            mapped(&["availablePermits()"], "`available_permits()`"),
            mapped(&["addPermits(int permits)"], "`add_permits(n)`"),
            mapped(&["drainPermits()"], "`drain_permits()`"),
        ],
    },
    Section {
        interfaces: &["RPermitExpirableSemaphore"],
        rows: &[
            mapped(&["trySetPermits(int permits)"], "`try_set_permits(n)`"),
            mapped(&["setPermits(int permits)"], "`set_permits(n)`"),
            mapped(&["addPermits(int permits)"], "`add_permits(n)`"),
            mapped(&["availablePermits()"], "`available_permits()`"),
            mapped(&["acquiredPermits()"], "`acquired_permits()`"),
            mapped(&["getPermits()"], "`permits()`"),
            mapped(&["acquire()"], "`without_lease().acquire()`"),
            mapped(&["acquire(int permits)"], "`without_lease().acquire_many(n)`"),
            mapped(&["acquire(long leaseTime, TimeUnit unit)"], "`with_lease(lease).acquire()`"),
            mapped(
                &["acquire(int permits, long leaseTime, TimeUnit unit)"],
                "`with_lease(lease).acquire_many(n)`",
            ),
            mapped(&["tryAcquire()"], "`without_lease().try_acquire()`"),
            mapped(&["tryAcquire(int permits)"], "`without_lease().try_acquire_many(n)`"),
            mapped(&["tryAcquire(long waitTime, TimeUnit unit)"], "`without_lease().try_acquire_for(wait)`"),
            mapped(
                &["tryAcquire(long waitTime, long leaseTime, TimeUnit unit)"],
                "`with_lease(lease).try_acquire_for(wait)`",
            ),
            mapped(
                &["tryAcquire(int permits, long waitTime, long leaseTime, TimeUnit unit)"],
                "`with_lease(lease).try_acquire_many_for(n, wait)`",
            ),
            mapped(
                &["release(String permitId)", "tryRelease(String permitId)"],
                "`permit.release()`; without the permit `semaphore.release(id)`",
            ),
            mapped(
                &["release(List<String> permitsIds)", "tryRelease(List<String> permitsIds)"],
                "`permit.release()`; without the permit `semaphore.release(id)` for each id",
            ),
            mapped(&["getLeaseTime(String permitId)"], "`remaining_lease(id)`"),
            mapped(
                &["updateLeaseTime(String permitId, long leaseTime, TimeUnit unit)"],
                "`update_lease(id, lease)`",
            ),
        ],
    },
    Section {
        interfaces: &["RCountDownLatch"],
        rows: &[
            mapped(&["trySetCount(long count)"], "`try_set_count(n)`"),
            mapped(&["await()"], "`wait()`"),
            mapped(&["await(long timeout, TimeUnit unit)"], "`wait_for(time)`"),
            mapped(&["countDown()"], "`count_down()`"),
            mapped(&["getCount()"], "`count()`"),
        ],
    },
    Section {
        interfaces: &["RObject", "RExpirable"],
        rows: &[
            mapped(
                &["delete()", "unlink()"],
                "of a latch `delete()`, which wakes the waiters; a semaphore is deleted with a Redis client",
            ),
            mapped(&["getName()"], "`name()`, which returns the mapped name"),
            left_out(&["getCodec()"], "semaphores and latches need no codec"),
            left_out(&["isExists()"], "`available_permits()` and `count()` treat a missing object as 0"),
            left_out(
                &[
                    "expire(Duration duration)",
                    "expire(Instant time)",
                    "expire(long timeToLive, TimeUnit timeUnit)",
                    "expireAt(Date timestamp)",
                    "expireAt(long timestamp)",
                    "expireIfGreater(Duration duration)",
                    "expireIfGreater(Instant time)",
                    "expireIfLess(Duration duration)",
                    "expireIfLess(Instant time)",
                    "expireIfNotSet(Duration duration)",
                    "expireIfNotSet(Instant time)",
                    "expireIfSet(Duration duration)",
                    "expireIfSet(Instant time)",
                    "clearExpire()",
                    "remainTimeToLive()",
                    "getExpireTime()",
                ],
                "a semaphore gets its expiry from `try_set_permits_for(n, time)`; later changes need a Redis client",
            ),
            left_out(
                &[
                    "copy(String destination)",
                    "copy(String destination, int database)",
                    "copy(String host, int port, int database, long timeout)",
                    "copyAndReplace(String destination)",
                    "copyAndReplace(String destination, int database)",
                    "dump()",
                    "migrate(String host, int port, int database, long timeout)",
                    "move(int database)",
                    "rename(String newName)",
                    "renamenx(String newName)",
                    "restore(byte[] state)",
                    "restore(byte[] state, long timeToLive, TimeUnit timeUnit)",
                    "restoreAndReplace(byte[] state)",
                    "restoreAndReplace(byte[] state, long timeToLive, TimeUnit timeUnit)",
                ],
                "these copy or move only one of the object's keys, while others use it; use a Redis client",
            ),
            left_out(
                &[
                    "getAccessFrequency()",
                    "getIdleTime()",
                    "getInternalEncoding()",
                    "getReferenceCount()",
                    "sizeInMemory()",
                    "touch()",
                ],
                "these describe how the server stores a key; use a Redis client",
            ),
            left_out(
                &["addListener(ObjectListener listener)", "removeListener(int listenerId)"],
                "listeners need keyspace notifications of the server",
            ),
        ],
    },
];
