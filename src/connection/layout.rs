//! A snapshot of a cluster: its masters, and the slots of each. Only the topology manager in `cluster` makes one.

use super::node::Node;
use crate::protocol::keys::SLOTS;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The master of each slot, as an index of `masters`. A redirect copies the layout, so an entry must be cheap to copy.
    slots: Vec<Option<u16>>,
    masters: Vec<Node>,
    /// The index of each master, by its name.
    index: HashMap<Arc<str>, u16>,
}

impl Layout {
    pub(super) fn empty() -> Self {
        Self { slots: vec![None; usize::from(SLOTS)], masters: Vec::new(), index: HashMap::new() }
    }

    pub(super) fn master_of(&self, slot: u16) -> Option<&Node> {
        self.slots[usize::from(slot)].map(|index| self.master(index))
    }

    /// Whether each slot has a master.
    pub(super) fn is_complete(&self) -> bool {
        self.slots.iter().all(Option::is_some)
    }

    pub(super) fn at(&self, host: &str, port: u16) -> Option<&Node> {
        self.named(&format!("{host}:{port}"))
    }

    pub(super) fn masters(&self) -> impl Iterator<Item = &Node> {
        self.masters.iter()
    }

    pub(super) fn master(&self, index: u16) -> &Node {
        &self.masters[usize::from(index)]
    }

    pub(super) fn named(&self, name: &str) -> Option<&Node> {
        self.index_of(name).map(|index| self.master(index))
    }

    pub(super) fn len(&self) -> usize {
        self.masters.len()
    }

    pub(super) fn index_of(&self, name: &str) -> Option<u16> {
        self.index.get(name).copied()
    }

    /// Gives the slots from `first` to `last` to a master. Returns whether the master of any of them changed.
    pub(super) fn assign(&mut self, first: u16, last: u16, master: u16) -> bool {
        let slots = &mut self.slots[usize::from(first)..=usize::from(last)];
        let changed = slots.iter().any(|slot| *slot != Some(master));
        slots.fill(Some(master));
        changed
    }

    /// Adds a node unless it is there, and returns its index.
    pub(super) fn add(&mut self, node: &Node) -> u16 {
        let Self { masters, index, .. } = self;
        *index.entry(node.name.clone()).or_insert_with(|| {
            masters.push(node.clone());
            u16::try_from(masters.len() - 1).expect("a cluster has far fewer masters")
        })
    }

    /// Whether both layouts have the same masters with the same slots.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.masters.len() == other.masters.len()
            && self.index.keys().all(|name| other.index.contains_key(name))
            && (0..SLOTS).all(|slot| {
                self.master_of(slot).map(|node| &node.name) == other.master_of(slot).map(|node| &node.name)
            })
    }
}
