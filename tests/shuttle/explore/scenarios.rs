//! The scenarios. Each prints what it explored, and fails if that is less than before.

use super::Step::{self, Drop, Lock, TryLock, Unlock};
use super::{Fault, Kind, Program, Scenario, explore};
use std::time::Duration;

/// A scenario without faults, whose deliveries are fast.
const PLAIN: Scenario = Scenario {
    name: "",
    kind: Kind::Lock,
    programs: &[],
    lease: Duration::from_secs(30),
    early: 0,
    fault: None,
    may_fail: false,
    at_least: 1,
};

const ONCE: &[Step] = &[Lock, Unlock];

const ONE_EACH: &[Program] = &[owner(0, "a", ONCE), owner(1, "c", ONCE)];
const TWO_OF_ONE: &[Program] = &[owner(0, "a", ONCE), after(0, owner(0, "b", ONCE))];
const ONE_AND_TWO: &[Program] = &[owner(0, "a", ONCE), owner(1, "b", ONCE), after(1, owner(1, "c", ONCE))];
const TWO_AND_ONE: &[Program] = &[owner(0, "a", ONCE), after(0, owner(0, "b", ONCE)), owner(1, "c", ONCE)];
const DROP_AND_TRY: &[Program] =
    &[owner(0, "a", &[Lock, Drop]), owner(0, "b", &[TryLock, Unlock]), owner(1, "c", ONCE)];
const DROP_AND_TRY_OF_ONE: &[Program] = &[owner(0, "a", &[Lock, Drop]), owner(0, "b", &[TryLock, Unlock])];
const CANCELLED: &[Program] = &[cancellable(owner(0, "a", ONCE)), owner(1, "c", ONCE)];
const CANCELLED_BESIDE: &[Program] = &[cancellable(owner(0, "a", ONCE)), owner(0, "b", ONCE)];
const REENTRY: &[Program] = &[owner(0, "a", &[Lock, Lock, Unlock, Unlock]), owner(1, "c", ONCE)];
const TWICE: &[Program] = &[owner(0, "a", &[Lock, Unlock, Lock, Unlock])];
const THREE_OF_ONE: &[Program] = &[
    owner(0, "a", ONCE),
    after(0, cancellable(owner(0, "b", ONCE))),
    after(1, cancellable(owner(0, "c", ONCE))),
];
/// Guards are dropped at once, so a permit may pass to a waiter whose attempt is in flight.
const LAST_CANCELLED: &[Program] =
    &[owner(0, "a", ONCE), after(0, owner(0, "b", &[Lock])), after(1, cancellable(owner(0, "c", &[Lock])))];

const fn owner(client: usize, owner: &'static str, steps: &'static [Step]) -> Program {
    Program { client, owner, steps, cancellable: false, after: None }
}

/// The owner starts after the other one. Otherwise an order would be explored again with the names exchanged.
const fn after(other: usize, program: Program) -> Program {
    Program { after: Some(other), ..program }
}

const fn cancellable(program: Program) -> Program {
    Program { cancellable: true, ..program }
}

/// A scenario with a fault. A client with a silent connection may report that the outcome of an unlock is unknown, before a heartbeat
/// ends the connection. A short lease makes the end of a crashed client's record come soon.
const fn faulty(programs: &'static [Program], fault: Fault, at_least: u64) -> Scenario {
    let (may_fail, lease) = (matches!(fault, Fault::Silence), Duration::from_secs(5));
    Scenario { programs, fault: Some(fault), may_fail, lease, at_least, ..PLAIN }
}

/// The same scenario for a semaphore with this number of permits.
const fn permits(permits: i64, at_least: u64, scenario: Scenario) -> Scenario {
    Scenario { kind: Kind::Semaphore(permits), at_least, ..scenario }
}

macro_rules! scenarios {
    ($($(#[$attribute:meta])* $name:ident: $scenario:expr;)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $name() {
                static SCENARIO: Scenario = Scenario { name: stringify!($name), ..$scenario };
                explore(&SCENARIO);
            }
        )*
    };
}

scenarios! {
    one_owner_of_each_client: Scenario { programs: ONE_EACH, early: 1, at_least: 850, ..PLAIN };
    two_owners_of_one_client: Scenario { programs: TWO_AND_ONE, at_least: 1800, ..PLAIN };
    a_dropped_guard_and_a_single_attempt: Scenario { programs: DROP_AND_TRY, at_least: 2200, ..PLAIN };
    a_cancelled_acquire: Scenario { programs: CANCELLED, at_least: 110, ..PLAIN };
    a_cancelled_acquire_beside_another: Scenario { programs: CANCELLED_BESIDE, at_least: 30, ..PLAIN };
    a_reentry: Scenario { programs: REENTRY, at_least: 50, ..PLAIN };
    a_lost_reply_or_late_request: faulty(ONE_EACH, Fault::CutCommands, 850);
    a_lost_reply_or_late_request_of_two_owners: faulty(TWO_OF_ONE, Fault::CutCommands, 90);
    /// A late request must not affect the next hold of its owner.
    a_late_request_and_a_second_hold: faulty(TWICE, Fault::CutCommands, 30);
    a_silent_connection: faulty(ONE_EACH, Fault::Silence, 110);
    a_silent_connection_of_two_owners: faulty(TWO_OF_ONE, Fault::Silence, 25);
    a_lost_message: faulty(ONE_EACH, Fault::CutSubscriptions, 80);
    a_crash: faulty(ONE_EACH, Fault::Crash, 180);
    a_lost_message_of_three_owners: faulty(TWO_AND_ONE, Fault::CutSubscriptions, 3800);
    a_crash_of_two_owners: faulty(TWO_AND_ONE, Fault::Crash, 4000);
    a_permit_of_each_client: permits(1, 55, Scenario { programs: ONE_EACH, ..PLAIN });
    a_cancelled_acquire_of_permits: permits(2, 65, Scenario { programs: CANCELLED_BESIDE, ..PLAIN });
    cancelled_acquires_of_permits: permits(2, 1200, Scenario { programs: THREE_OF_ONE, ..PLAIN });
    a_lost_reply_or_late_request_for_permits: permits(1, 1100, faulty(ONE_EACH, Fault::CutCommands, 0));
    a_lost_reply_or_late_request_for_free_permits: permits(2, 430, faulty(TWO_OF_ONE, Fault::CutCommands, 0));
    a_lost_reply_or_late_request_and_a_single_attempt_for_permits:
        permits(1, 1000, faulty(DROP_AND_TRY_OF_ONE, Fault::CutCommands, 0));
    a_silent_connection_for_permits: permits(1, 140, faulty(TWO_OF_ONE, Fault::Silence, 0));
    a_silent_connection_and_a_cancelled_acquire_of_permits:
        permits(3, 440, faulty(LAST_CANCELLED, Fault::Silence, 0));
    a_lost_message_about_permits: permits(1, 100, faulty(ONE_EACH, Fault::CutSubscriptions, 0));
    a_crash_with_permits: permits(2, 2700, faulty(ONE_AND_TWO, Fault::Crash, 0));
}
