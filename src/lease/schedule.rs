//! A schedule of items by the time at which they are due.
//!
//! Adding and removing an item costs one lookup in a map of times, whatever the number of items at that time. Removal must
//! be cheap, because most holds end long before they are due.

use crate::runtime::clock::Moment;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// An item that can be in one schedule at a time, and that knows its position there.
pub(crate) trait Scheduled {
    fn timer_slot(&self) -> &TimerSlot;
}

/// The position of an item in its schedule. It is read and written only under the schedule's lock.
#[derive(Debug, Default)]
pub(crate) struct TimerSlot {
    /// The time in the schedule's map, 0 if the item is in no schedule.
    due: AtomicU64,
    /// The index in the list of that time.
    at: AtomicUsize,
}

impl TimerSlot {
    fn set(&self, due: Option<Moment>, at: usize) {
        self.due.store(due.map_or(0, Moment::nanos), Ordering::Relaxed);
        self.at.store(at, Ordering::Relaxed);
    }

    fn leave(&self) -> Option<(Moment, usize)> {
        let due = Moment::from_nanos(self.due.swap(0, Ordering::Relaxed))?;
        Some((due, self.at.load(Ordering::Relaxed)))
    }
}

#[derive(Debug)]
pub(crate) struct Schedule<T> {
    all: BTreeMap<Moment, Vec<Arc<T>>>,
    /// An emptied list, kept to save an allocation.
    spare: Vec<Arc<T>>,
}

impl<T: Scheduled> Schedule<T> {
    pub(crate) const fn new() -> Self {
        Self { all: BTreeMap::new(), spare: Vec::new() }
    }

    /// When the first item is due.
    pub(crate) fn first(&self) -> Option<Moment> {
        self.all.first_key_value().map(|(&due, _)| due)
    }

    /// Adds `item`, or moves it if it is in the schedule already.
    pub(crate) fn put(&mut self, item: &Arc<T>, due: Moment) {
        self.take(item);
        let spare = &mut self.spare;
        let list = self.all.entry(due).or_insert_with(|| std::mem::take(spare));
        item.timer_slot().set(Some(due), list.len());
        list.push(item.clone());
    }

    /// Removes `item`, if it is in the schedule.
    pub(crate) fn take(&mut self, item: &T) {
        let Some((due, at)) = item.timer_slot().leave() else { return };
        let Some(list) = self.all.get_mut(&due) else { return };
        list.swap_remove(at);
        match list.get(at) {
            Some(moved) => moved.timer_slot().set(Some(due), at),
            None if list.is_empty() => self.spare = self.all.remove(&due).unwrap_or_default(),
            None => {}
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.all.values().flatten()
    }

    /// Removes and returns the items that are due by `now`.
    pub(crate) fn take_due(&mut self, now: Moment) -> Vec<Arc<T>> {
        let mut due = Vec::new();
        while let Some(first) = self.all.first_entry().filter(|first| *first.key() <= now) {
            due.append(&mut first.remove());
        }
        due.iter().for_each(|item| item.timer_slot().set(None, 0));
        due
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[derive(Debug, Default)]
    struct Item(TimerSlot);

    impl Scheduled for Item {
        fn timer_slot(&self) -> &TimerSlot {
            &self.0
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(usize, u64),
        Take(usize),
        Due(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..6_usize, 0..5_u64).prop_map(|(item, due)| Step::Put(item, due)),
            (0..6_usize).prop_map(Step::Take),
            (0..5_u64).prop_map(Step::Due),
        ]
    }

    proptest! {
        /// The model is a list that is searched from end to end.
        #[test]
        fn an_item_comes_out_when_it_is_due(steps in proptest::collection::vec(step(), 0..40)) {
            let start = Moment::now();
            let at = |due: u64| start + Duration::from_secs(due);
            let items: Vec<_> = (0..6).map(|_| Arc::<Item>::default()).collect();
            let mut schedule = Schedule::new();
            let mut model: Vec<(u64, usize)> = Vec::new();
            for step in steps {
                match step {
                    Step::Put(item, due) => {
                        schedule.put(&items[item], at(due));
                        model.retain(|&(_, other)| other != item);
                        model.push((due, item));
                    }
                    Step::Take(item) => {
                        schedule.take(&items[item]);
                        model.retain(|&(_, other)| other != item);
                    }
                    Step::Due(now) => {
                        let out = schedule.take_due(at(now));
                        let index = |item: &Arc<Item>| items.iter().position(|other| Arc::ptr_eq(other, item));
                        let mut out: Vec<_> = out.iter().filter_map(index).collect();
                        let mut due: Vec<_> =
                            model.iter().filter(|&&(due, _)| due <= now).map(|&(_, item)| item).collect();
                        model.retain(|&(due, _)| due > now);
                        out.sort_unstable();
                        due.sort_unstable();
                        prop_assert_eq!(out, due);
                    }
                }
                prop_assert_eq!(schedule.first(), model.iter().map(|&(due, _)| at(due)).min());
                let copies: usize = items.iter().map(|item| Arc::strong_count(item) - 1).sum();
                prop_assert_eq!(copies, model.len());
            }
        }
    }
}
