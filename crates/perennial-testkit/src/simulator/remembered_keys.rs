//! The guarantee of G16 about idempotency keys, computed from the histories alone: an instance remembers the
//! keys of its current execution and the last 1,000 from before it.

use std::collections::BTreeMap;

use perennial_core::Job;
use perennial_core::history::is_drawn_key;

const REMEMBERED: usize = 1_000;

/// The number of times that an update was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Takings {
    pub(super) count: usize,
    /// Whether one of them was while its key had to be remembered.
    pub(super) while_known: bool,
}

/// Counts how often the update with a key was accepted in the executions of an instance, given their jobs in
/// order.
pub(super) fn takings<'a, Jobs>(executions: impl Iterator<Item = Jobs>, update: &str) -> Takings
where
    Jobs: Iterator<Item = &'a Job>,
{
    let mut takings = Takings::default();
    let mut last_taken: BTreeMap<&str, usize> = BTreeMap::new();
    let mut taken = 0;
    for jobs in executions {
        let before = taken;
        for job in jobs {
            let Some(key) = job.key().filter(|key| !is_drawn_key(key)) else { continue };
            let known = last_taken.get(key).copied();
            // A repeated event was carried over unread: its key keeps its age. No update is carried over
            // after its handler started, and the simulated programs start all of them.
            if known.is_some() && matches!(job, Job::ExternalEvent { .. }) {
                continue;
            }
            if key == update {
                takings.count += 1;
                takings.while_known |= known.is_some_and(|place| place + REMEMBERED >= before);
            }
            last_taken.insert(key, taken);
            taken += 1;
        }
    }
    takings
}

#[cfg(test)]
mod tests {
    use perennial_core::Payload;

    use super::*;

    fn update(key: &str) -> Job {
        let (name, payload, key) = ("say".to_owned(), Payload::null(), Some(key.to_owned()));
        Job::UpdateRequested { name, payload, key, trace: None }
    }

    fn events(count: usize) -> Vec<Job> {
        let event = |number| Job::ExternalEvent {
            name: "n".to_owned(),
            payload: Payload::null(),
            key: Some(format!("k{number}")),
            trace: None,
        };
        (0..count).map(event).collect()
    }

    fn while_known(executions: &[Vec<Job>]) -> bool {
        let takings = takings(executions.iter().map(|jobs| jobs.iter()), "u");
        assert_eq!(takings.count, 2);
        takings.while_known
    }

    #[test]
    fn g16_an_update_may_be_taken_again_only_after_a_thousand_other_keys() {
        let first = |others| [vec![update("u")], events(others)].concat();
        assert!(while_known(&[first(999), vec![update("u")]]));
        assert!(!while_known(&[first(1_000), vec![update("u")]]));
    }

    #[test]
    fn g16_an_update_is_known_throughout_the_execution_that_took_it_and_the_next_that_knew_it() {
        let all = [vec![update("u")], events(2_000), vec![update("u")]].concat();
        assert!(while_known(std::slice::from_ref(&all)));
        let next = [events(2_000), vec![update("u")]].concat();
        assert!(while_known(&[vec![update("u")], next]));
    }

    #[test]
    fn g16_events_that_cross_unread_count_once() {
        let first = [vec![update("u")], events(600)].concat();
        assert!(while_known(&[first, events(600), events(900), vec![update("u")]]));
    }
}
