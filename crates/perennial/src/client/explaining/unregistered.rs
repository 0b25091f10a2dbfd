//! The check at the start of a runtime for code that open instances need and no live node has registered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use perennial_core::store::{InstanceRow, Status, TaskId, TaskState};
use perennial_core::{Decision, log};

use super::nodes::Nodes;
use super::reading::Looked;
use super::{Depth, OpenOperation};
use crate::client::Client;
use crate::error::ClientError;
use crate::filter::Filter;

/// How many unfinished instances, and how many tasks, are checked. Each is read as one page.
const ROWS: usize = 500;

/// How long the check may delay the start.
const PATIENCE: Duration = Duration::from_millis(500);

/// What nobody has registered: instances by name and version of their orchestration, activities by name and
/// tag.
#[derive(Default)]
struct Unregistered {
    orchestrations: BTreeMap<(String, String), usize>,
    activities: BTreeMap<(String, String), BTreeSet<TaskId>>,
}

impl Unregistered {
    fn note_activity(&mut self, nodes: &Nodes, task: TaskId, name: &str, tag: Option<&str>) {
        if nodes.serving(name, tag).is_empty() {
            let place = (name.to_owned(), tag.unwrap_or_default().to_owned());
            self.activities.entry(place).or_default().insert(task);
        }
    }
}

impl Client {
    /// Logs each orchestration and activity that open instances need and no live node has registered. The
    /// instances are not lost: they wait, and [`Client::find_stuck`] finds them too.
    ///
    /// The cost does not depend on the size of the store: 500 tasks and the 500 oldest unfinished instances
    /// are read, and the check stops after half a second.
    pub(crate) async fn warn_of_unregistered(&self) {
        let mut found = Unregistered::default();
        let error = match tokio::time::timeout(PATIENCE, self.find_unregistered(&mut found)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it took too long".to_owned()),
        };
        if let Some(error) = error {
            tracing::debug!(target: log::NODE, error, "registrations were not compared with all open instances");
        }
        for ((orchestration, version), count) in found.orchestrations {
            tracing::warn!(
                target: log::NODE,
                orchestration,
                version,
                count,
                "orchestration of open instances is registered on no live node"
            );
        }
        for ((activity, tag), tasks) in found.activities {
            tracing::warn!(
                target: log::NODE,
                activity,
                tag,
                count = tasks.len(),
                "activity that open instances wait for is registered on no live node"
            );
        }
    }

    async fn find_unregistered(&self, found: &mut Unregistered) -> Result<(), ClientError> {
        let nodes = Nodes::new(self.call("", |store, reply| store.directory(reply)).await?);
        let open = Filter::new().status(Status::Pending).status(Status::Running);
        let rows = self.list_rows(open, None, ROWS).await?.rows;
        for row in rows.iter().filter(|row| nodes.missing(&row.name, &row.version).is_some()) {
            *found.orchestrations.entry((row.name.clone(), row.version.clone())).or_default() += 1;
        }
        for task in self.call("", |store, reply| store.list_tasks(None, ROWS, reply)).await? {
            if task.state == TaskState::Queued {
                found.note_activity(&nodes, task.id, &task.name, task.tag.as_deref());
            }
        }
        // A first attempt that ran in the owner's process has no row, so it is found only in the history.
        for row in &rows {
            self.note_open_activities(&nodes, row, found).await?;
        }
        Ok(())
    }

    /// Notes the open activities of an instance whose next attempt nobody can run.
    async fn note_open_activities(
        &self,
        nodes: &Nodes,
        row: &InstanceRow,
        found: &mut Unregistered,
    ) -> Result<(), ClientError> {
        let looked = match self.look(&row.id, row.shard, row.key, Depth::LIST).await {
            // It continues as new faster than it can be read, so it is not stuck.
            Err(ClientError::Unknown { .. }) => None,
            looked => looked?,
        };
        // An unreadable history is reported when the instance is hydrated.
        let Some(Looked { loaded, work: Ok(work) }) = looked else { return Ok(()) };
        for OpenOperation { event, decision, .. } in work.operations() {
            let Decision::ActivityScheduled { name, options, .. } = decision else { continue };
            let task = loaded.tasks.iter().find(|task| task.id.event == event);
            // Its attempt is over and is completed from outside, or its result is not wanted.
            let is_run = task.is_none_or(|task| task.waits_for_token_since_ms().is_none());
            if is_run && !work.is_stopping(event) {
                let id = TaskId { key: row.key, execution: loaded.row.execution, event };
                found.note_activity(nodes, id, &name, options.and_then(|options| options.tag).as_deref());
            }
        }
        Ok(())
    }
}
