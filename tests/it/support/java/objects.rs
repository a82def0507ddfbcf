//! Java objects that have more methods than lock and unlock.

use std::time::Duration;

use super::{JavaClient, JavaThread, Pending, name64, read, read_unless_dash};

/// An argument of a Java method.
pub enum Argument<'a> {
    Int(i32),
    Long(i64),
    /// A `long` and its `TimeUnit`.
    Time(Duration),
    /// The wait and the lease, two `long`s, and their `TimeUnit`.
    Times(Duration, Duration),
    /// A `java.time.Duration`.
    Duration(Duration),
    Text(&'a str),
    /// A `List<String>` of one or more permit ids.
    Ids(&'a [String]),
}

use Argument::{Ids, Int, Long, Text, Time, Times};

/// Methods of any object.
impl JavaThread {
    /// Calls a method by its name. Returns the result in Java's spelling, with `-` for nothing and for null.
    pub fn method(&self, kind: &str, name: &str, method: &str, arguments: &[Argument]) -> Pending {
        let mut text = format!("call {kind} {} {method}", name64(name));
        for argument in arguments {
            text += &match argument {
                Int(number) => format!(" i{number}"),
                Long(number) => format!(" l{number}"),
                Times(wait, lease) => format!(" l{} l{} ms", wait.as_millis(), lease.as_millis()),
                Time(time) => format!(" l{} ms", time.as_millis()),
                Argument::Duration(time) => format!(" d{}", time.as_millis()),
                Text(value) => format!(" s{}", name64(value)),
                Ids(ids) => format!(" [{}", ids.join(",")),
            };
        }
        self.start(&text)
    }

    /// Whether there was a record to delete.
    pub fn delete(&self, kind: &str, name: &str) -> Pending<bool> {
        self.method(kind, name, "delete", &[]).reading(read)
    }

    /// Opens the object of that kind for one key of a map, and returns the name by which it is known from then on.
    pub fn of_entry(&self, kind: &str, map: &str, key: &str) -> Pending {
        self.start(&format!("ofEntry {kind} {} {}", name64(map), name64(key)))
    }

    pub fn semaphore(&self, name: &str) -> JavaSemaphore {
        JavaSemaphore(self.object("semaphore", name))
    }

    pub fn permits(&self, name: &str) -> JavaPermits {
        JavaPermits(self.object("permitsemaphore", name))
    }

    pub fn latch(&self, name: &str) -> JavaLatch {
        JavaLatch(self.object("latch", name))
    }

    fn object(&self, kind: &'static str, name: &str) -> Object {
        Object { thread: self.clone(), kind, name: name.to_owned() }
    }
}

/// Locks that consist of several locks.
impl JavaThread {
    /// Makes a lock of the kind `multi` or `red` from locks (client, kind, name). `alias` is its name.
    pub fn combine(&self, kind: &str, alias: &str, members: &[(&JavaClient, &str, &str)]) -> Pending<()> {
        let mut text = format!("combine {kind} {}", name64(alias));
        for (client, kind, name) in members {
            text += &format!(" {} {kind} {}", client.connection.name, name64(name));
        }
        self.start(&text).reading(|_| ())
    }

    /// Makes a lock of the kind `group` for some values of a group. `alias` is its name.
    pub fn group(&self, alias: &str, group: &str, values: &[&str]) -> Pending<()> {
        let mut text = format!("group {} {}", name64(alias), name64(group));
        for value in values {
            text += &format!(" {}", name64(value));
        }
        self.start(&text).reading(|_| ())
    }
}

/// Fenced locks.
impl JavaThread {
    pub fn lock_and_get_token(&self, name: &str) -> Pending<i64> {
        self.method("fenced", name, "lockAndGetToken", &[]).reading(read)
    }

    pub fn lock_and_get_token_for(&self, name: &str, lease: Duration) -> Pending<i64> {
        self.method("fenced", name, "lockAndGetToken", &[Time(lease)]).reading(read)
    }

    pub fn try_lock_and_get_token(
        &self,
        name: &str,
        wait: Duration,
        lease: Duration,
    ) -> Pending<Option<i64>> {
        self.method("fenced", name, "tryLockAndGetToken", &[Times(wait, lease)]).reading(read_unless_dash)
    }

    pub fn token(&self, name: &str) -> Pending<Option<i64>> {
        self.method("fenced", name, "getToken", &[]).reading(read_unless_dash)
    }

    /// [`loop_`](Self::loop_) with a fenced lock, which also returns the token of each hold.
    pub fn loop_tokens(
        &self,
        name: &str,
        iterations: u32,
        counter: &str,
        hold: Duration,
    ) -> Pending<Vec<(u64, u64, i64)>> {
        self.looping("fenced", name, iterations, counter, hold).reading(|holds| {
            let hold = |text: &str| {
                let mut words = text.split(':');
                Some((read(words.next()?), read(words.next()?), read(words.next()?)))
            };
            holds.split(',').filter_map(hold).collect()
        })
    }
}

/// An object of one thread, under its name.
#[derive(Clone)]
struct Object {
    thread: JavaThread,
    kind: &'static str,
    name: String,
}

impl Object {
    fn call(&self, method: &str, arguments: &[Argument]) -> Pending {
        self.thread.method(self.kind, &self.name, method, arguments)
    }

    fn returns_nothing(&self, method: &str, arguments: &[Argument]) -> Pending<()> {
        self.call(method, arguments).reading(|_| ())
    }

    fn returns_bool(&self, method: &str, arguments: &[Argument]) -> Pending<bool> {
        self.call(method, arguments).reading(read)
    }

    fn returns_number(&self, method: &str, arguments: &[Argument]) -> Pending<i64> {
        self.call(method, arguments).reading(read)
    }
}

/// A semaphore whose permits are only counted.
#[derive(Clone)]
pub struct JavaSemaphore(Object);

impl JavaSemaphore {
    pub fn try_set_permits(&self, permits: i32) -> Pending<bool> {
        self.0.returns_bool("trySetPermits", &[Int(permits)])
    }

    /// Since 3.29.
    pub fn try_set_permits_for(&self, permits: i32, ttl: Duration) -> Pending<bool> {
        self.0.returns_bool("trySetPermits", &[Int(permits), Argument::Duration(ttl)])
    }

    pub fn acquire(&self, permits: i32) -> Pending<()> {
        self.0.returns_nothing("acquire", &[Int(permits)])
    }

    pub fn try_acquire(&self, permits: i32) -> Pending<bool> {
        self.0.returns_bool("tryAcquire", &[Int(permits)])
    }

    pub fn try_acquire_within(&self, permits: i32, wait: Duration) -> Pending<bool> {
        self.0.returns_bool("tryAcquire", &[Int(permits), Time(wait)])
    }

    pub fn release(&self, permits: i32) -> Pending<()> {
        self.0.returns_nothing("release", &[Int(permits)])
    }

    /// In 4.7.0.
    pub fn release_if_exists(&self, permits: i32) -> Pending<bool> {
        self.0.returns_bool("releaseIfExists", &[Int(permits)])
    }

    pub fn available_permits(&self) -> Pending<i64> {
        self.0.returns_number("availablePermits", &[])
    }

    pub fn drain_permits(&self) -> Pending<i64> {
        self.0.returns_number("drainPermits", &[])
    }

    /// Since 3.13; in 3.12 it is `reduce_permits`.
    pub fn add_permits(&self, permits: i32) -> Pending<()> {
        self.0.returns_nothing("addPermits", &[Int(permits)])
    }

    /// Before 3.13. `add_permits` of the opposite number replaces it.
    pub fn reduce_permits(&self, permits: i32) -> Pending<()> {
        self.0.returns_nothing("reducePermits", &[Int(permits)])
    }

    pub fn delete(&self) -> Pending<bool> {
        self.0.returns_bool("delete", &[])
    }
}

/// A semaphore whose permits have ids, and may expire.
#[derive(Clone)]
pub struct JavaPermits(Object);

impl JavaPermits {
    pub fn try_set_permits(&self, permits: i32) -> Pending<bool> {
        self.0.returns_bool("trySetPermits", &[Int(permits)])
    }

    /// Since 3.19.
    pub fn set_permits(&self, permits: i32) -> Pending<()> {
        self.0.returns_nothing("setPermits", &[Int(permits)])
    }

    pub fn add_permits(&self, permits: i32) -> Pending<()> {
        self.0.returns_nothing("addPermits", &[Int(permits)])
    }

    /// The id of a permit that never expires.
    pub fn acquire(&self) -> Pending {
        self.0.call("acquire", &[])
    }

    pub fn acquire_for(&self, lease: Duration) -> Pending {
        self.0.call("acquire", &[Time(lease)])
    }

    /// Since 3.23.
    pub fn acquire_many(&self, permits: i32) -> Pending<Vec<String>> {
        self.0.call("acquire", &[Int(permits)]).reading(ids)
    }

    /// Since 3.23.
    pub fn acquire_many_for(&self, permits: i32, lease: Duration) -> Pending<Vec<String>> {
        self.0.call("acquire", &[Int(permits), Time(lease)]).reading(ids)
    }

    /// A single attempt.
    pub fn try_acquire(&self) -> Pending<Option<String>> {
        self.0.call("tryAcquire", &[]).reading(read_unless_dash)
    }

    pub fn try_acquire_within_for(&self, wait: Duration, lease: Duration) -> Pending<Option<String>> {
        self.0.call("tryAcquire", &[Times(wait, lease)]).reading(read_unless_dash)
    }

    pub fn release(&self, id: &str) -> Pending<()> {
        self.0.returns_nothing("release", &[Text(id)])
    }

    /// Since 3.23.
    pub fn release_many(&self, ids: &[String]) -> Pending<()> {
        self.0.returns_nothing("release", &[Ids(ids)])
    }

    pub fn try_release(&self, id: &str) -> Pending<bool> {
        self.0.returns_bool("tryRelease", &[Text(id)])
    }

    /// Returns how many were released. Since 3.23.
    pub fn try_release_many(&self, ids: &[String]) -> Pending<i64> {
        self.0.returns_number("tryRelease", &[Ids(ids)])
    }

    /// In 3.10.1, but not in 3.3.2.
    pub fn update_lease_time(&self, id: &str, lease: Duration) -> Pending<bool> {
        self.0.returns_bool("updateLeaseTime", &[Text(id), Time(lease)])
    }

    /// In ms. Since 3.41.
    pub fn lease_time(&self, id: &str) -> Pending<i64> {
        self.0.returns_number("getLeaseTime", &[Text(id)])
    }

    pub fn available_permits(&self) -> Pending<i64> {
        self.0.returns_number("availablePermits", &[])
    }

    /// The acquired and the available permits together. Since 3.19.
    pub fn permits(&self) -> Pending<i64> {
        self.0.returns_number("getPermits", &[])
    }

    /// Since 3.19.
    pub fn acquired_permits(&self) -> Pending<i64> {
        self.0.returns_number("acquiredPermits", &[])
    }

    pub fn delete(&self) -> Pending<bool> {
        self.0.returns_bool("delete", &[])
    }
}

#[derive(Clone)]
pub struct JavaLatch(Object);

impl JavaLatch {
    pub fn try_set_count(&self, count: i64) -> Pending<bool> {
        self.0.returns_bool("trySetCount", &[Long(count)])
    }

    pub fn count_down(&self) -> Pending<()> {
        self.0.returns_nothing("countDown", &[])
    }

    pub fn count(&self) -> Pending<i64> {
        self.0.returns_number("getCount", &[])
    }

    pub fn await_(&self) -> Pending<()> {
        self.0.returns_nothing("await", &[])
    }

    pub fn await_within(&self, wait: Duration) -> Pending<bool> {
        self.0.returns_bool("await", &[Time(wait)])
    }

    pub fn delete(&self) -> Pending<bool> {
        self.0.returns_bool("delete", &[])
    }
}

fn ids(text: String) -> Vec<String> {
    text.split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect()
}
