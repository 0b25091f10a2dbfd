//! The nodes of a store, as operators see them.

use std::collections::BTreeMap;
use std::time::Duration;

use perennial_core::store::{NodeInfo, SessionId, SessionRole, SessionRow};
use perennial_core::{ShardId, Timestamp};
use serde::{Serialize, Serializer};

use super::Client;
use crate::error::ClientError;

/// A node: a process with a runtime on the store. See [`Client::nodes`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeView {
    /// Identifies the process, for its lifetime.
    pub id: String,
    /// The name given by its operator.
    pub name: String,
    /// The machine it runs on.
    pub host: String,
    /// Its process id.
    pub process: u32,
    /// Its version of Perennial.
    pub version: String,
    /// When it started, by its own clock.
    pub since: Timestamp,
    /// When its session expires unless it is renewed.
    pub expires: Timestamp,
    /// Whether its session has not expired.
    pub is_live: bool,
    /// Whether it owns shards and runs orchestrations. If not, it is a worker, which runs activities only.
    pub owns_shards: bool,
    /// The number of its lanes.
    pub lanes: usize,
    /// The number of shards that its lanes own.
    pub shards: usize,
    /// The registered orchestrations, as (name, version). A name with a star is a pattern.
    pub orchestrations: Vec<(String, String)>,
    /// The registered activities. A name with a star is a pattern.
    pub activities: Vec<String>,
    /// Activities that require one of these run on it.
    pub tags: Vec<String>,
    /// How many activities it runs at a time.
    pub slots: usize,
    /// How many more activities it could run when it last said so; `None` if it has not.
    pub free_slots: Option<usize>,
    /// How many turns it takes at a time.
    pub turn_threads: usize,
    /// How many turns ran when it last said so; `None` if it has not.
    pub busy_turn_threads: Option<usize>,
    /// How many instances it had in memory when it last said so; `None` if it has not.
    pub residents: Option<usize>,
    /// By how many milliseconds its clock was ahead of the store's when it last said so; `None` if it has not.
    pub clock_offset_ms: Option<i64>,
}

/// A shard and its owner. See [`Client::shards`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShardView {
    /// The number of the shard, from 0 to 255.
    pub shard: u8,
    /// The [id](NodeView::id) of the node that owns it; `None` if nobody does.
    pub node: Option<String>,
    /// Since when nobody owns it, if that is known.
    #[serde(rename = "unowned_since_ms")]
    pub unowned_since: Option<Timestamp>,
    /// How late its most overdue instance is; zero if none is late.
    #[serde(rename = "lag_ms", serialize_with = "milliseconds")]
    pub lag: Duration,
}

impl NodeView {
    /// Whether it can run an activity, with a tag if the activity requires one.
    pub fn can_run(&self, activity: &str, tag: Option<&str>) -> bool {
        let takes = |name: &String| match name.strip_suffix('*') {
            Some(prefix) => activity.starts_with(prefix),
            None => name == activity,
        };
        self.activities.iter().any(takes)
            && tag.is_none_or(|tag| self.tags.iter().any(|served| served == tag))
    }
}

impl Client {
    /// The nodes of the store, with what each runs and owns. A node that ended without stopping is listed, as not live, until
    /// another one takes its shards over.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// # #[orchestration]
    /// # async fn order(_: OrchestrationContext) -> Result<(), String> { Ok(()) }
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// let runtime = Runtime::open("memory:").register(order).start().await?;
    /// let nodes = runtime.client().nodes().await?;
    /// assert!(nodes[0].is_live && nodes[0].shards == 256);
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        let directory = self.call("", |store, reply| store.directory(reply)).await?;
        let mut nodes: BTreeMap<SessionId, NodeView> = BTreeMap::new();
        for session in directory.sessions.iter().filter(|session| session.role == SessionRole::Node) {
            let info = NodeInfo::decode(&session.info);
            let view = NodeView {
                id: format!("{:032x}", session.node.0),
                name: info.name,
                host: info.host,
                process: info.process,
                version: info.version,
                since: Timestamp::from_millis(info.since_ms),
                expires: Timestamp::from_millis(session.expires_ms),
                is_live: session.expires_ms > directory.now_ms,
                owns_shards: info.owns_shards,
                lanes: 0,
                shards: 0,
                orchestrations: info.orchestrations,
                activities: info.activities,
                tags: info.tags,
                slots: info.slots,
                free_slots: info.free,
                turn_threads: info.turn_threads,
                busy_turn_threads: info.load.map(|load| load.turns),
                residents: info.load.map(|load| load.residents),
                clock_offset_ms: info.load.map(|load| load.clock_offset_ms),
            };
            nodes.insert(session.node, view);
        }
        for lane in directory.sessions.iter().filter(|session| session.role == SessionRole::Lane) {
            if let Some(node) = nodes.get_mut(&lane.node) {
                node.lanes += 1;
                node.shards += lane.shards;
            }
        }
        Ok(nodes.into_values().collect())
    }

    /// The names of the nodes by their sessions and those of their lanes, which [`TaskState`](crate::client::TaskState)
    /// refers to.
    pub async fn session_names(&self) -> Result<BTreeMap<SessionId, String>, ClientError> {
        let directory = self.call("", |store, reply| store.directory(reply)).await?;
        let nodes = directory.sessions.iter().filter(|session| session.role == SessionRole::Node);
        let names: BTreeMap<SessionId, String> =
            nodes.map(|session| (session.node, NodeInfo::decode(&session.info).name)).collect();
        let named = |session: &SessionRow| Some((session.id, names.get(&session.node)?.clone()));
        Ok(directory.sessions.iter().filter_map(named).collect())
    }

    /// The 256 shards, with the node that owns each.
    pub async fn shards(&self) -> Result<Vec<ShardView>, ClientError> {
        let directory = self.call("", |store, reply| store.directory(reply)).await?;
        let is_live = |session: &&SessionRow| session.expires_ms > directory.now_ms;
        let live: BTreeMap<SessionId, &SessionRow> =
            directory.sessions.iter().filter(is_live).map(|session| (session.id, session)).collect();
        let earliest: BTreeMap<u8, u64> =
            self.call("", |store, reply| store.details(reply)).await?.earliest.into_iter().collect();
        let mut shards = Vec::new();
        for shard in ShardId::all() {
            let owner = self.call("", |store, reply| store.shard_owner(shard, reply)).await?;
            let session = owner.session.and_then(|session| live.get(&session));
            let node = session.map(|session| format!("{:032x}", session.node.0));
            let unowned_since = owner.idle_since_ms.map(Timestamp::from_millis);
            let due_ms = earliest.get(&shard.0).copied().unwrap_or(directory.now_ms);
            let lag = Duration::from_millis(directory.now_ms.saturating_sub(due_ms));
            shards.push(ShardView { shard: shard.0, node, unowned_since, lag });
        }
        Ok(shards)
    }
}

/// Writes a span as milliseconds, like the moments beside it.
fn milliseconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
