//! What is due when. To put something in or take it out costs one look into a map of moments, and not of all that is in
//! it: most holds end long before anything is due for them.

use crate::runtime::clock::Moment;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What can be put into a schedule, one at a time, and knows where it is there.
pub(crate) trait Scheduled {
    fn place(&self) -> &TimerSlot;
}

/// Where something is in its schedule. Written and read under that one's lock only.
#[derive(Debug, Default)]
pub(crate) struct TimerSlot {
    /// 0 where it is in none.
    due: AtomicU64,
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
    /// One that was emptied, to be used again.
    spare: Vec<Arc<T>>,
}

impl<T: Scheduled> Schedule<T> {
    pub(crate) const fn new() -> Self {
        Self { all: BTreeMap::new(), spare: Vec::new() }
    }

    /// When the first of all is due.
    pub(crate) fn first(&self) -> Option<Moment> {
        self.all.first_key_value().map(|(&due, _)| due)
    }

    /// From wherever it is.
    pub(crate) fn put(&mut self, it: &Arc<T>, due: Moment) {
        self.take(it);
        let spare = &mut self.spare;
        let together = self.all.entry(due).or_insert_with(|| std::mem::take(spare));
        it.place().set(Some(due), together.len());
        together.push(it.clone());
    }

    pub(crate) fn take(&mut self, it: &T) {
        let Some((due, at)) = it.place().leave() else { return };
        let Some(together) = self.all.get_mut(&due) else { return };
        together.swap_remove(at);
        match together.get(at) {
            Some(moved) => moved.place().set(Some(due), at),
            None if together.is_empty() => self.spare = self.all.remove(&due).unwrap_or_default(),
            None => {}
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.all.values().flatten()
    }

    /// Takes out what is due by `now`.
    pub(crate) fn take_due(&mut self, now: Moment) -> Vec<Arc<T>> {
        let mut due = Vec::new();
        while let Some(first) = self.all.first_entry().filter(|first| *first.key() <= now) {
            due.append(&mut first.remove());
        }
        due.iter().for_each(|it| it.place().set(None, 0));
        due
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[derive(Debug, Default)]
    struct Thing(TimerSlot);

    impl Scheduled for Thing {
        fn place(&self) -> &TimerSlot {
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
            (0..6_usize, 0..5_u64).prop_map(|(thing, due)| Step::Put(thing, due)),
            (0..6_usize).prop_map(Step::Take),
            (0..5_u64).prop_map(Step::Due),
        ]
    }

    proptest! {
        /// Beside a list that is searched from end to end.
        #[test]
        fn what_is_put_in_comes_out_when_it_is_due(steps in proptest::collection::vec(step(), 0..40)) {
            let start = Moment::now();
            let at = |due: u64| start + Duration::from_secs(due);
            let things: Vec<_> = (0..6).map(|_| Arc::<Thing>::default()).collect();
            let mut schedule = Schedule::new();
            let mut model: Vec<(u64, usize)> = Vec::new();
            for step in steps {
                match step {
                    Step::Put(thing, due) => {
                        schedule.put(&things[thing], at(due));
                        model.retain(|&(_, other)| other != thing);
                        model.push((due, thing));
                    }
                    Step::Take(thing) => {
                        schedule.take(&things[thing]);
                        model.retain(|&(_, other)| other != thing);
                    }
                    Step::Due(now) => {
                        let out = schedule.take_due(at(now));
                        let index = |it: &Arc<Thing>| things.iter().position(|thing| Arc::ptr_eq(thing, it));
                        let mut out: Vec<_> = out.iter().filter_map(index).collect();
                        let mut due: Vec<_> =
                            model.iter().filter(|&&(due, _)| due <= now).map(|&(_, thing)| thing).collect();
                        model.retain(|&(due, _)| due > now);
                        out.sort_unstable();
                        due.sort_unstable();
                        prop_assert_eq!(out, due);
                    }
                }
                prop_assert_eq!(schedule.first(), model.iter().map(|&(due, _)| at(due)).min());
                let copies: usize = things.iter().map(|thing| Arc::strong_count(thing) - 1).sum();
                prop_assert_eq!(copies, model.len());
            }
        }
    }
}
