//! What has to be true of the load in the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use perennial::history::Job;
use perennial::{Client, Status};
use perennial_core::history::decode_history;
use perennial_testkit::invariants::{Snapshot, StoredInstance, assert_invariants};

use super::Load;
use super::kinds::{expected_output, handlers};
use crate::support::Place;

/// Everything has ended as it should, and every invariant holds. Returns how many instances were looked at.
pub(crate) async fn all_is_well(place: &Place, load: &Load, client: &Client) -> u64 {
    let snapshot = place.snapshot();
    assert_invariants(&snapshot, &load.client_log(), &handlers());
    let mut seen = 0;
    for StoredInstance { row, .. } in &snapshot.instances {
        assert!(row.status.is_final(), "{} has not ended: {:?}", row.id, row.blocked);
        let expected = match row.id.split('-').next().unwrap() {
            // Children, and those that were ended from outside.
            _ if row.id.contains("::") => continue,
            "ended" | "phoenix" => continue,
            "short" => "1".to_owned(),
            _ => expected_output(&row.id),
        };
        seen += 1;
        assert_eq!(row.status, Status::Completed, "{}", row.id);
        let output = client.result(&row.id).await.unwrap();
        assert_eq!(output.as_json(), expected, "{}", row.id);
    }
    updates_are_there_once(load, &snapshot);
    seen
}

/// Each acknowledged update is in a history, once.
fn updates_are_there_once(load: &Load, snapshot: &Snapshot) {
    for (id, keys) in load.updates() {
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for turns in snapshot.instance(&id).unwrap().executions.values() {
            let history = decode_history(turns).unwrap();
            for (_, job) in history.turns.iter().flat_map(|turn| turn.jobs()) {
                if let Job::UpdateRequested { key: Some(key), .. } = job {
                    *found.entry(key.clone()).or_default() += 1;
                }
            }
        }
        for key in keys {
            assert_eq!(found.get(&key), Some(&1), "{id}: {key} was acknowledged");
        }
        assert!(found.values().all(|count| *count == 1), "{id}: {found:?}");
    }
}

/// Keeps the files of a failed run, and says where.
pub(crate) fn keep(load: &Load) -> PathBuf {
    let from = load.directory();
    let to = std::env::temp_dir().join(format!("perennial-crash-{}", std::process::id()));
    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    to
}
