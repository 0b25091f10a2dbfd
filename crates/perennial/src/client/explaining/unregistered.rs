//! The check at the start of a runtime for code that open instances need and no live node has registered.

use std::collections::BTreeMap;
use std::time::Duration;

use perennial_core::log;
use perennial_core::store::{Status, TaskState};

use super::nodes::Nodes;
use crate::client::Client;
use crate::error::ClientError;
use crate::filter::Filter;

/// How many unfinished instances, and how many tasks, are checked. Each is read as one page.
const ROWS: usize = 500;

/// How long the check may delay the start.
const PATIENCE: Duration = Duration::from_millis(500);

/// Counts: instances by name and version of their orchestration, activities by name and tag.
#[derive(Default)]
struct Unregistered {
    orchestrations: BTreeMap<(String, String), usize>,
    activities: BTreeMap<(String, String), usize>,
}

impl Client {
    /// Logs each orchestration and activity that open instances need and no live node has registered. The
    /// instances are not lost: they wait, and [`Client::find_stuck`] finds them too.
    ///
    /// The cost does not depend on the size of the store: the 500 oldest unfinished instances and 500 tasks
    /// are read, without their histories, and the check stops after half a second.
    pub(crate) async fn warn_of_unregistered(&self) {
        let found = match tokio::time::timeout(PATIENCE, self.find_unregistered()).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                tracing::debug!(target: log::NODE, %error, "registrations were not compared with open instances");
                return;
            }
            Err(_) => {
                let error = "the store took too long to answer";
                tracing::debug!(target: log::NODE, error, "registrations were not compared with open instances");
                return;
            }
        };
        for ((orchestration, version), count) in found.orchestrations {
            tracing::warn!(
                target: log::NODE,
                orchestration,
                version,
                count,
                "orchestration of open instances is registered on no live node"
            );
        }
        for ((activity, tag), count) in found.activities {
            tracing::warn!(
                target: log::NODE,
                activity,
                tag,
                count,
                "activity that open instances wait for is registered on no live node"
            );
        }
    }

    async fn find_unregistered(&self) -> Result<Unregistered, ClientError> {
        let nodes = Nodes::new(self.call("", |store, reply| store.directory(reply)).await?);
        let open = Filter::new().status(Status::Pending).status(Status::Running);
        let mut found = Unregistered::default();
        for row in self.list_rows(open, None, ROWS).await?.rows {
            if nodes.runs(&row.name, &row.version).is_err() {
                *found.orchestrations.entry((row.name, row.version)).or_default() += 1;
            }
        }
        for task in self.call("", |store, reply| store.list_tasks(None, ROWS, reply)).await? {
            let is_served = !nodes.serving(&task.name, task.tag.as_deref()).is_empty();
            if task.state == TaskState::Queued && !is_served {
                *found.activities.entry((task.name, task.tag.unwrap_or_default())).or_default() += 1;
            }
        }
        Ok(found)
    }
}
