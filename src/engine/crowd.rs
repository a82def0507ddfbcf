//! Many clients at one key: which of them attempt after a release.
//!
//! The message of a release reaches every client that waits. If each of them attempted, the cost of a hold would grow with their number,
//! although only one of them gets the lock. So a client that knows the number of subscribers draws lots at each message. On average,
//! [`WINNERS`] clients attempt at once. As many attempt each time that the time since the message has grown by a factor of e. The next
//! message ends all delays. So a hold costs attempts in proportion to the logarithm of its length, and not to the number of clients. A
//! client that waits for long wins more often, so none of them starves.
//!
//! Clients of other libraries, such as Redisson's, attempt at every message, and would leave little to a crowd that draws lots. An attempt
//! that fails learns the holder. If that is a foreign client, the crowd is greedy for a while: a client attempts at every other message,
//! and after a hold it yields for one turn only.

use crate::kinds::kind::LockKind;
use crate::runtime::clock::Moment;
use crate::runtime::sync::random;
use std::f64::consts::LN_2;
use std::time::Duration;

/// With this number of other clients or fewer, every client attempts at each message.
const FEW: u64 = 4;
/// How many clients attempt at a message, on average.
const WINNERS: f64 = 2.0;
/// The probability of an attempt at a message is 1 - e^-GREEDY, which is 1/2, while the crowd is greedy. If all clients attempted, the first
/// attempt would reach the server later, because clients share processors and processes.
const GREEDY: f64 = LN_2;
/// A foreign holder makes a client greedy for this number of attempts. So a crowd beside 8 foreign clients of 136 mostly remains greedy
/// when these have only their fair share.
const GREEDY_FOR: u8 = 32;
/// The shortest delay of a client that does not attempt at a message.
const SHORTEST_DELAY: Duration = Duration::from_micros(500);
/// The longest delay, for each client and in all: the number of clients may have fallen since it was counted.
const LONGEST_DELAY_FOR_EACH: Duration = Duration::from_millis(1);
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// The clients are counted once this number of messages brought other clients the lock.
const COUNT_AFTER: u64 = 2;
/// The number of clients is counted again after this time, and this time for each of them.
const COUNT_AGAIN_AFTER: Duration = Duration::from_secs(1);
const COUNT_AGAIN_AFTER_EACH: Duration = Duration::from_millis(10);
/// The same if the server does not report the number.
const COUNT_UNKNOWN_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The other clients, as far as a waiting client knows them.
pub(crate) struct Crowd {
    /// The number of subscriptions of other clients, 0 if it is unknown.
    others: u64,
    pub count_at: Moment,
    /// The number of messages heard when the wait began.
    since: u64,
    /// The last draw: the number of messages heard at that time, and when to attempt.
    drawn: Option<(u64, Moment)>,
    /// For how many attempts this client is still greedy.
    greedy_for: u8,
}

impl Crowd {
    /// `messages` is the number of messages heard before the wait.
    pub(crate) fn new(messages: u64) -> Self {
        Self { others: 0, count_at: Moment::now(), since: messages, drawn: None, greedy_for: 0 }
    }

    /// Begins another wait.
    pub(crate) fn begin(&mut self, messages: u64) {
        self.since = messages;
    }

    /// Records the outcome of an attempt: a foreign client holds the lock, or a client of this library does.
    pub(crate) fn found(&mut self, foreign: bool) {
        self.greedy_for = if foreign { GREEDY_FOR } else { self.greedy_for.saturating_sub(1) };
    }

    /// Whether this client is as greedy as the foreign clients that it waits with.
    pub(crate) fn is_greedy(&self) -> bool {
        self.others > FEW && self.greedy_for > 0
    }

    /// Whether the clients that wait for a lock of this kind draw lots. One release admits one of them, a message announces it, and the
    /// user may count subscriptions.
    pub(crate) fn draws(kind: &dyn LockKind) -> bool {
        kind.traits().hands_off && !kind.traits().queued && kind.poll().is_none()
    }

    /// Whether it is time to count the other clients.
    pub(crate) fn is_count_due(&self, messages: u64, now: Moment) -> bool {
        self.in_vain(messages) >= COUNT_AFTER && now >= self.count_at
    }

    /// The number of messages that brought other clients the lock since the wait began.
    pub(crate) fn in_vain(&self, messages: u64) -> u64 {
        messages.saturating_sub(self.since)
    }

    /// Records the number of subscriptions of other clients, `None` if it is unknown.
    pub(crate) fn counted(&mut self, others: Option<u64>, now: Moment) {
        self.others = others.unwrap_or(0);
        self.count_at = now
            + match others {
                Some(others) => COUNT_AGAIN_AFTER + times(COUNT_AGAIN_AFTER_EACH, others),
                None => COUNT_UNKNOWN_AGAIN_AFTER,
            };
    }

    /// When to attempt, after this number of messages.
    pub(crate) fn turn(&mut self, messages: u64, now: Moment) -> Moment {
        if self.others <= FEW {
            return now;
        }
        match self.drawn {
            Some((at, turn)) if at == messages => turn,
            _ => {
                let least = if self.is_greedy() { GREEDY } else { 0.0 };
                let turn = now + delay(self.others, self.in_vain(messages), least, random());
                self.drawn = Some((messages, turn));
                turn
            }
        }
    }

    /// The longest delay of an attempt after a message.
    pub(crate) fn longest_delay(&self) -> Duration {
        if self.others <= FEW { Duration::ZERO } else { longest_delay(self.others + 1) }
    }
}

/// The delay of an attempt after a message, beside this number of other clients and after this number of messages that brought them the
/// lock. `least` is the least chance of an attempt.
fn delay(others: u64, in_vain: u64, least: f64, random: u64) -> Duration {
    let all = others + 1;
    // The probability of an attempt each time that the time has grown by a factor of e.
    let chance = ((WINNERS + in_vain as f64 / all as f64) / all as f64).max(least);
    // Two independent random numbers, above 0 and at most 1.
    let [lot, part] =
        [random >> 32, random & 0xFFFF_FFFF].map(|half| (half + 1) as f64 / (1u64 << 32) as f64);
    let steps = -lot.ln() / chance;
    // Spread, so that the clients that reach it do not attempt together.
    let longest = longest_delay(all).mul_f64((1.0 + part) / 2.0);
    match steps < 1.0 {
        true => Duration::ZERO,
        false => Duration::try_from_secs_f64(SHORTEST_DELAY.as_secs_f64() * (steps - 1.0).exp())
            .map_or(longest, |delay| delay.min(longest)),
    }
}

fn longest_delay(all: u64) -> Duration {
    (SHORTEST_DELAY + times(LONGEST_DELAY_FOR_EACH, all)).min(LONGEST_DELAY)
}

fn times(each: Duration, number: u64) -> Duration {
    each.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The delays of all clients of a crowd at one message.
    fn delays(clients: u64, in_vain: u64) -> Vec<Duration> {
        (0..clients).map(|_| delay(clients - 1, in_vain, 0.0, random())).collect()
    }

    #[test]
    fn about_two_clients_attempt_at_a_message_whatever_their_number() {
        for clients in [8, 128, 1024] {
            let at_once = |_| delays(clients, 0).iter().filter(|delay| delay.is_zero()).count();
            let all: usize = (0..2000).map(at_once).sum();
            // 1.8 to 2.0 on average.
            assert!((3300..=4300).contains(&all), "{all} attempts at 2,000 messages to {clients} clients");
        }
    }

    #[test]
    fn few_others_attempt_during_a_short_hold_and_all_of_them_in_the_end() {
        let longest = longest_delay(128);
        let within = |time: Duration| {
            let later = |_| delays(128, 0).iter().filter(|delay| !delay.is_zero() && **delay <= time).count();
            (0..500).map(later).sum::<usize>()
        };
        // 4.5 on average: nearly two for each factor of e.
        assert!((1950..=2500).contains(&within(SHORTEST_DELAY * 10)));
        let all = delays(128, 0);
        assert!(
            all.iter().all(|delay| delay.is_zero() || (SHORTEST_DELAY..=longest).contains(delay)),
            "{all:?}"
        );
        let late: std::collections::BTreeSet<_> = all.iter().filter(|delay| **delay >= longest / 2).collect();
        assert!(late.len() > 64, "they attempt together: {all:?}");
    }

    #[test]
    fn a_client_that_waited_long_attempts_at_every_message() {
        assert!(delays(128, 128 * 128 * 30).iter().all(Duration::is_zero));
    }

    #[test]
    fn a_few_clients_all_attempt_and_a_draw_counts_until_the_next_message() {
        let now = Moment::now();
        let mut crowd = Crowd::new(0);
        assert_eq!(crowd.turn(1, now), now, "the number of clients is unknown");
        crowd.counted(Some(FEW), now);
        assert_eq!(crowd.turn(2, now), now);
        crowd.counted(Some(1_000_000), now);
        let turn = crowd.turn(3, now);
        assert!(turn > now, "two of a million win");
        assert_eq!(crowd.turn(3, now), turn);
        assert_ne!(crowd.turn(4, now), turn);
        assert!(crowd.turn(4, now) <= now + LONGEST_DELAY);
        crowd.counted(None, now);
        assert_eq!(crowd.turn(4, now), now);
    }

    #[test]
    fn a_foreign_holder_makes_a_client_attempt_at_every_other_message_for_a_while() {
        let now = Moment::now();
        let mut crowd = Crowd::new(0);
        crowd.counted(Some(1000), now);
        let mut messages = 0;
        let mut at_once = |crowd: &mut Crowd| {
            let attempts = |_: &u64| {
                messages += 1;
                crowd.begin(messages);
                crowd.turn(messages, now) == now
            };
            (0..1000_u64).filter(attempts).count()
        };
        assert!(at_once(&mut crowd) < 50, "two of a thousand at each message");
        crowd.found(true);
        let attempts = at_once(&mut crowd);
        assert!((400..=600).contains(&attempts), "{attempts} attempts at 1,000 messages");
        (1..GREEDY_FOR).for_each(|_| crowd.found(false));
        assert!(crowd.is_greedy());
        crowd.found(false);
        assert!(!crowd.is_greedy() && at_once(&mut crowd) < 50);
        crowd.found(true);
        crowd.counted(Some(FEW), now);
        assert!(!crowd.is_greedy(), "a few clients all attempt, and yield to each other");
    }

    #[test]
    fn the_others_are_counted_after_two_messages_and_again_later() {
        let now = Moment::now();
        let mut crowd = Crowd::new(7);
        assert!(!crowd.is_count_due(8, now) && crowd.is_count_due(9, crowd.count_at));
        crowd.counted(Some(100), now);
        let again = now + Duration::from_secs(2);
        assert!(!crowd.is_count_due(9, again - Duration::from_millis(1)) && crowd.is_count_due(9, again));
        crowd.begin(9);
        assert!(!crowd.is_count_due(10, again), "another wait");
    }
}
