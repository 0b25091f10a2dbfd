//! The instances in memory, by key and by id.
//!
//! An instance is found by its id from when the id is known: at once for a start, after loading for what came by its key.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::instance::InstanceKey;

use super::instance::Instance;

#[derive(Default)]
pub(super) struct Instances {
    by_key: BTreeMap<InstanceKey, Instance>,
    by_id: BTreeMap<Arc<str>, InstanceKey>,
}

impl Instances {
    /// Adds an instance. Another one that has its id is still the one that is found by it.
    pub(super) fn add(&mut self, instance: Instance) {
        if !instance.id().is_empty() {
            self.by_id.entry(Arc::clone(instance.id())).or_insert(instance.key());
        }
        self.by_key.entry(instance.key()).or_insert(instance);
    }

    /// An instance was loaded: its stored id is its own, whoever else wants it.
    pub(super) fn set_id(&mut self, key: InstanceKey, id: &str) {
        let Some(instance) = self.by_key.get_mut(&key) else { return };
        if **instance.id() != *id || self.by_id.get(id) != Some(&key) {
            let id: Arc<str> = Arc::from(id);
            instance.set_id(Arc::clone(&id));
            self.by_id.insert(id, key);
        }
    }

    pub(super) fn remove(&mut self, key: InstanceKey) -> Option<Instance> {
        let instance = self.by_key.remove(&key)?;
        if self.by_id.get(instance.id()) == Some(&key) {
            self.by_id.remove(instance.id());
        }
        Some(instance)
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn contains(&self, key: InstanceKey) -> bool {
        self.by_key.contains_key(&key)
    }

    pub(super) fn get(&self, key: InstanceKey) -> Option<&Instance> {
        self.by_key.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: InstanceKey) -> Option<&mut Instance> {
        self.by_key.get_mut(&key)
    }

    pub(super) fn key_of(&self, id: &str) -> Option<InstanceKey> {
        self.by_id.get(id).copied()
    }

    /// All of them, in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Instance> {
        self.by_key.values()
    }

    /// Removes all of them, in the order of their keys.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Instance> + use<> {
        self.by_id.clear();
        std::mem::take(&mut self.by_key).into_values()
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
