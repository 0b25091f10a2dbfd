//! The instances in memory, by key and by id.
//!
//! An instance can be found by its id as soon as the id is known: immediately for a start, after loading for an
//! instance that was addressed by key.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::instance::InstanceKey;

use super::instance::Instance;

#[derive(Default)]
pub(super) struct Instances {
    /// A hash map: instances are added and removed with every start, which would keep rebalancing a tree. Iteration
    /// sorts the keys.
    by_key: FxHashMap<InstanceKey, Box<Instance>>,
    by_id: HashMap<Arc<str>, InstanceKey>,
    /// How many of them have work in progress.
    busy: usize,
}

impl Instances {
    /// Adds an instance. If another one has the same id, that one is still found by it.
    pub(super) fn add(&mut self, instance: Instance) {
        if !instance.id().is_empty() {
            self.by_id.entry(Arc::clone(instance.id())).or_insert(instance.key());
        }
        if let Entry::Vacant(vacant) = self.by_key.entry(instance.key()) {
            self.busy += usize::from(instance.is_busy());
            vacant.insert(Box::new(instance));
        }
    }

    /// Applies an input to an instance, and removes the instance if it is no longer needed in memory.
    pub(super) fn update<T>(
        &mut self,
        key: InstanceKey,
        input: impl FnOnce(&mut Instance) -> T,
    ) -> Option<T> {
        let instance = self.by_key.get_mut(&key)?;
        let was_busy = instance.is_busy();
        let output = input(instance);
        self.busy = self.busy + usize::from(instance.is_busy()) - usize::from(was_busy);
        if instance.is_gone() {
            self.remove(key);
        }
        Some(output)
    }

    /// Whether no instance has work in progress.
    pub(super) fn is_quiet(&self) -> bool {
        self.busy == 0
    }

    /// Registers the id of a loaded instance: its stored id takes precedence over pending starts with the same id.
    pub(super) fn set_id(&mut self, key: InstanceKey, id: &str) {
        let Some(instance) = self.by_key.get_mut(&key) else { return };
        if **instance.id() != *id || self.by_id.get(id) != Some(&key) {
            let id: Arc<str> = Arc::from(id);
            instance.set_id(Arc::clone(&id));
            self.by_id.insert(id, key);
        }
    }

    fn remove(&mut self, key: InstanceKey) {
        let Some(instance) = self.by_key.remove(&key) else { return };
        self.busy -= usize::from(instance.is_busy());
        if self.by_id.get(instance.id()) == Some(&key) {
            self.by_id.remove(instance.id());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn contains(&self, key: InstanceKey) -> bool {
        self.by_key.contains_key(&key)
    }

    pub(super) fn get(&self, key: InstanceKey) -> Option<&Instance> {
        self.by_key.get(&key).map(|instance| &**instance)
    }

    pub(super) fn key_of(&self, id: &str) -> Option<InstanceKey> {
        self.by_id.get(id).copied()
    }

    /// All instances, ordered by key.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Instance> {
        let mut all: Vec<&Instance> = self.by_key.values().map(|instance| &**instance).collect();
        all.sort_unstable_by_key(|instance| instance.key());
        all.into_iter()
    }

    /// Removes all instances, ordered by key.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Box<Instance>> + use<> {
        self.by_id.clear();
        self.busy = 0;
        let mut all: Vec<Box<Instance>> = self.by_key.drain().map(|(_, instance)| instance).collect();
        all.sort_unstable_by_key(|instance| instance.key());
        all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u128) -> InstanceKey {
        InstanceKey::new(1, number)
    }

    #[test]
    fn n5_an_id_names_an_instance_in_memory_or_nothing() {
        let mut instances = Instances::default();
        instances.add(Instance::loading(key(1), Arc::from("")));
        assert_eq!(instances.key_of(""), None, "an unknown id is not an id");
        instances.set_id(key(1), "a");
        instances.set_id(key(9), "b");
        assert_eq!((instances.key_of("a"), instances.key_of("b")), (Some(key(1)), None));
        instances.remove(key(1));
        assert_eq!((instances.key_of("a"), instances.len()), (None, 0));
    }

    #[test]
    fn n8_instances_that_have_something_under_way_are_counted() {
        let mut instances = Instances::default();
        assert!(instances.is_quiet());
        instances.add(Instance::loading(key(1), Arc::from("a")));
        instances.add(Instance::loading(key(1), Arc::from("a")));
        instances.add(Instance::loading(key(2), Arc::from("b")));
        assert_eq!(instances.busy, 2);
        instances.update(key(2), |_| ());
        instances.update(key(3), |_| ());
        assert_eq!(instances.busy, 2);
        instances.remove(key(1));
        instances.remove(key(1));
        assert_eq!(instances.busy, 1);
        assert_eq!(instances.take_all().count(), 1);
        assert!(instances.is_quiet());
    }

    #[test]
    fn g17_a_stored_id_is_its_own_and_a_rival_start_does_not_take_it() {
        let mut instances = Instances::default();
        instances.add(Instance::loading(key(1), Arc::from("")));
        instances.add(Instance::loading(key(2), Arc::from("a")));
        instances.set_id(key(1), "a");
        instances.add(Instance::loading(key(3), Arc::from("a")));
        assert_eq!(instances.key_of("a"), Some(key(1)));
        instances.remove(key(2));
        assert_eq!(instances.key_of("a"), Some(key(1)), "the other one does not take the id with it");
    }
}
