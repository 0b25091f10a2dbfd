//! The nodes of a store, from the directory of sessions.

use std::collections::BTreeMap;

use perennial_core::store::{Directory, NodeInfo, SessionId, SessionRole, SessionRow, ShardOwner};
use perennial_core::{NamePattern, Timestamp};

use super::wait::WaitReason;
use crate::similar::similar;

/// The nodes at the time the directory was read.
pub(super) struct Nodes {
    pub(super) now: Timestamp,
    sessions: Vec<SessionRow>,
    /// The nodes with a session that has not expired.
    live: BTreeMap<SessionId, NodeInfo>,
}

/// The ownership of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// Owned by a live node, by its name.
    Live(String),
    /// Not owned, since then. Other nodes are running.
    NoOwner(Option<Timestamp>),
    /// No process runs orchestrations.
    NoRuntime(Option<Timestamp>),
}

impl Nodes {
    pub(super) fn new(directory: Directory) -> Nodes {
        let Directory { now_ms, sessions } = directory;
        let is_node = |session: &&SessionRow| session.role != SessionRole::Maintenance;
        let live = sessions.iter().filter(is_node).filter(|session| session.expires_ms >= now_ms);
        let live = live.map(|session| (session.node, NodeInfo::decode(&session.info))).collect();
        Nodes { now: Timestamp::from_millis(now_ms), sessions, live }
    }

    /// How many nodes are alive.
    pub(super) fn count(&self) -> usize {
        self.live.len()
    }

    /// Whether a live node runs orchestrations.
    pub(super) fn has_owners(&self) -> bool {
        self.live.values().any(|info| info.owns_shards)
    }

    /// How many live nodes run orchestrations.
    pub(super) fn owners(&self) -> usize {
        self.live.values().filter(|info| info.owns_shards).count()
    }

    /// The ownership of the instances of a shard.
    pub(super) fn ownership(&self, owner: ShardOwner) -> Ownership {
        let session = owner.session.and_then(|id| self.session(id));
        let lane = session.filter(|session| session.role == SessionRole::Lane);
        if let Some(name) = lane.and_then(|lane| self.live.get(&lane.node)).map(name_of) {
            return Ownership::Live(name);
        }
        // A lane that died is known to have lived until its lease ended.
        let since = owner.idle_since_ms.map(Timestamp::from_millis);
        let since = since.or(lane.map(|lane| Timestamp::from_millis(lane.expires_ms).min(self.now)));
        match self.has_owners() {
            true => Ownership::NoOwner(since),
            false => Ownership::NoRuntime(since),
        }
    }

    /// The name of the node that has a session, and whether the node is alive.
    pub(super) fn holder(&self, id: SessionId) -> Option<(String, bool)> {
        let session = self.session(id)?;
        let name = name_of(&NodeInfo::decode(&session.info));
        Some((name, self.live.contains_key(&session.node)))
    }

    /// The names of the live nodes that can run an activity.
    pub(super) fn serving(&self, name: &str, tag: Option<&str>) -> Vec<String> {
        let serves = |info: &&NodeInfo| {
            info.activities.iter().any(|registered| is_meant(registered, name))
                && tag.is_none_or(|tag| info.tags.iter().any(|served| served == tag))
        };
        self.live.values().filter(serves).map(name_of).collect()
    }

    /// What there is instead if no live node can run an orchestration at a version, or at any if none is set
    /// yet; `None` if one can.
    pub(super) fn missing(&self, name: &str, version: &str) -> Option<WaitReason> {
        let all = || self.live.values().flat_map(|info| &info.orchestrations);
        let mut registered: Vec<String> = all()
            .filter(|(registered, _)| is_meant(registered, name))
            .map(|(_, version)| version.clone())
            .collect();
        registered.sort();
        registered.dedup();
        if registered.iter().any(|one| version.is_empty() || one == version) {
            return None;
        }
        let (similar, name, version) = (self.similar_to(name), name.to_owned(), version.to_owned());
        Some(WaitReason::OrchestrationNotRegistered { name, version, registered, similar })
    }

    /// A similar name that a live node has registered, if none has this one.
    pub(super) fn similar_to(&self, name: &str) -> Option<String> {
        let names =
            || self.live.values().flat_map(|info| &info.orchestrations).map(|(name, _)| name.as_str());
        let is_registered = names().any(|registered| is_meant(registered, name));
        if is_registered { None } else { similar(name, names()).map(str::to_owned) }
    }

    /// The names of the live nodes that own shards and can run an orchestration at a version, or at any if none is set
    /// yet.
    pub(super) fn with_code(&self, name: &str, version: &str) -> Vec<String> {
        let has = |info: &&NodeInfo| {
            let mut code = info.orchestrations.iter();
            let is_it = |(registered, has): &(String, String)| {
                is_meant(registered, name) && (version.is_empty() || has == version)
            };
            info.owns_shards && code.any(is_it)
        };
        self.live.values().filter(has).map(name_of).collect()
    }

    fn session(&self, id: SessionId) -> Option<&SessionRow> {
        self.sessions.iter().find(|session| session.id == id)
    }
}

/// Whether a registered name, or a pattern that ends with a star, matches a name.
fn is_meant(registered: &str, name: &str) -> bool {
    registered == name || NamePattern::parse(registered).is_ok_and(|pattern| pattern.covers(name))
}

fn name_of(info: &NodeInfo) -> String {
    match info.name.as_str() {
        "" => format!("process {} on {}", info.process, info.host),
        name => name.to_owned(),
    }
}
