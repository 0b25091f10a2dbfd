//! Divides a batch into waves, and the messages of a member into stages.
//!
//! Each member of a batch sees the effects of the members before it. The server writes each part of a wave with one
//! statement, so members of a wave must be independent: none may write what another reads. Most batches are one wave.
//! If independence cannot be determined here, the members go to different waves.

use perennial_core::store::{Commit, Outgoing, ShardSet, TaskChange};
use perennial_core::{InstanceKey, ShardId};
use rustc_hash::{FxHashMap, FxHashSet};

/// The wave of each member, counted from 1.
pub(crate) fn waves<'c>(members: impl Iterator<Item = &'c Commit>) -> Vec<i32> {
    let (mut wave, mut number, mut waves) = (Reach::default(), 1, Vec::new());
    for member in members {
        let reach = Reach::of(member);
        if wave.meets(&reach) {
            number += 1;
            wave = reach;
        } else {
            wave.extend(reach);
        }
        waves.push(number);
    }
    waves
}

/// The keys and ids that members read and write.
#[derive(Default)]
struct Reach<'c> {
    /// Instances whose rows, turns or tasks are written.
    own: FxHashSet<InstanceKey>,
    /// Instances that receive messages, by key.
    addressees: FxHashSet<InstanceKey>,
    /// Ids under which instances are started.
    started: FxHashSet<&'c str>,
    /// Ids that messages are sent to.
    named: FxHashSet<&'c str>,
    /// The shards of those ids. A member of one of these shards may own the instance; the server resolves the ids.
    named_shards: ShardSet,
    own_shards: ShardSet,
    messages: FxHashSet<u64>,
    requests: FxHashSet<u64>,
    /// A member may delete an instance whose children only the server knows.
    deletes: bool,
    has_members: bool,
}

impl<'c> Reach<'c> {
    fn of(member: &'c Commit) -> Reach<'c> {
        let mut reach = Reach { has_members: true, ..Reach::default() };
        reach.own.insert(member.key);
        reach.own_shards.insert(member.shard);
        reach.started.extend(member.insert.iter().map(|row| &*row.id));
        reach.messages.extend(member.consumed.iter().chain(&member.seen));
        reach.requests.extend(member.replies.iter().map(|reply| reply.number));
        reach.own.extend(member.tasks.iter().map(|change| match change {
            TaskChange::Put(row) => row.id.key,
            TaskChange::Cancel(id) => id.key,
        }));
        for message in &member.send {
            match message {
                Outgoing::ToKey { to, .. } => drop(reach.addressees.insert(*to)),
                Outgoing::ToId { id, .. } => {
                    reach.named.insert(id);
                    reach.named_shards.insert(ShardId::of(id));
                }
                Outgoing::Start { row, replaces_ended, .. } => {
                    reach.own.insert(row.key);
                    reach.started.insert(&row.id);
                    reach.deletes |= replaces_ended;
                }
            }
        }
        reach
    }

    fn meets(&self, other: &Reach<'_>) -> bool {
        self.has_members
            && (self.deletes
                || other.deletes
                || overlap(&self.own, &other.own)
                || overlap(&self.own, &other.addressees)
                || overlap(&self.addressees, &other.own)
                || overlap(&self.started, &other.started)
                || overlap(&self.started, &other.named)
                || overlap(&self.named, &other.started)
                || overlap(&self.messages, &other.messages)
                || overlap(&self.requests, &other.requests)
                || !self.named_shards.and(&other.own_shards).is_empty()
                || !self.own_shards.and(&other.named_shards).is_empty())
    }

    fn extend(&mut self, other: Reach<'c>) {
        self.own.extend(other.own);
        self.addressees.extend(other.addressees);
        self.started.extend(other.started);
        self.named.extend(other.named);
        self.messages.extend(other.messages);
        self.requests.extend(other.requests);
        self.named_shards.extend_from(&other.named_shards);
        self.own_shards.extend_from(&other.own_shards);
        self.deletes |= other.deletes;
        self.has_members = true;
    }
}

fn overlap<T: std::hash::Hash + Eq>(one: &FxHashSet<T>, other: &FxHashSet<T>) -> bool {
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    !many.is_empty() && few.iter().any(|value| many.contains(value))
}

/// The stage of each message of a member. Starts are in even stages and other messages in odd stages, each after the
/// stages whose effects it has to see.
pub(crate) fn stages(send: &[Outgoing]) -> Vec<i32> {
    let mut started: FxHashMap<Name<'_>, i32> = FxHashMap::default();
    let mut messaged: FxHashMap<Name<'_>, i32> = FxHashMap::default();
    // The last stage that sends a message, and the first stage that may be used.
    let (mut last, mut first) = (0, 0);
    let mut stages = Vec::with_capacity(send.len());
    for message in send {
        let stage = match message {
            Outgoing::Start { row, replaces_ended, .. } => {
                let names = [Name::Key(row.key), Name::Id(&row.id)];
                let after = |known: &FxHashMap<Name<'_>, i32>| {
                    names.iter().filter_map(|name| known.get(name)).max().map_or(0, |stage| stage + 1)
                };
                let mut stage = first.max(after(&started)).max(after(&messaged));
                if *replaces_ended {
                    stage = stage.max(last).max(started.values().copied().max().unwrap_or(0) + 1);
                }
                stage += stage % 2;
                if *replaces_ended {
                    first = stage;
                }
                started.extend(names.map(|name| (name, stage)));
                stage
            }
            Outgoing::ToKey { .. } | Outgoing::ToId { .. } => {
                let name = match message {
                    Outgoing::ToKey { to, .. } => Name::Key(*to),
                    Outgoing::ToId { id, .. } => Name::Id(id),
                    Outgoing::Start { .. } => unreachable!("it is in the arm above"),
                };
                let stage = last.max(first).max(started.get(&name).map_or(0, |stage| stage + 1));
                let stage = stage + 1 - stage % 2;
                last = stage;
                messaged.insert(name, stage);
                stage
            }
        };
        stages.push(stage);
    }
    stages
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Name<'c> {
    Key(InstanceKey),
    Id(&'c str),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perennial_core::Attributes;
    use perennial_core::store::{InstanceRow, RequestReply, RowChange, Status};

    use super::*;

    fn key(number: u8) -> InstanceKey {
        InstanceKey::from_bytes([number; 16])
    }

    fn member(number: u8) -> Commit {
        Commit::empty(key(number), ShardId(0))
    }

    fn row(number: u8, id: &str) -> Box<InstanceRow> {
        Box::new(InstanceRow {
            key: key(number),
            id: id.to_owned(),
            shard: ShardId::of(id),
            name: "n".to_owned(),
            version: "1.0.0".to_owned(),
            status: Status::Pending,
            execution: 1,
            owed: false,
            wake_at_ms: None,
            blocked: None,
            full: false,
            attributes: Attributes::default(),
            published: None,
            parent: None,
            created_ms: 0,
            ended_ms: None,
            checksum: 0,
        })
    }

    fn body() -> Arc<[u8]> {
        Arc::from(&b"x"[..])
    }

    fn to_key(number: u8) -> Outgoing {
        Outgoing::ToKey { to: key(number), shard: ShardId(0), dedupe: None, urgent: false, body: body() }
    }

    fn to_id(id: &str) -> Outgoing {
        Outgoing::ToId { id: id.to_owned(), dedupe: None, urgent: false, body: body(), report: None }
    }

    fn start(number: u8, id: &str, replaces_ended: bool) -> Outgoing {
        Outgoing::Start { row: row(number, id), body: body(), otherwise: None, replaces_ended, started: None }
    }

    fn sending(number: u8, send: Vec<Outgoing>) -> Commit {
        Commit { send, ..member(number) }
    }

    fn ending(number: u8) -> Commit {
        let change = RowChange { status: Some(Status::Completed), ..RowChange::default() };
        Commit { change, ..member(number) }
    }

    #[test]
    fn s2_members_that_do_not_concern_each_other_share_a_wave() {
        let many: Vec<Commit> = (1..=100).map(ending).collect();
        assert_eq!(waves(many.iter()), vec![1; 100]);
        let to_one = [
            sending(1, vec![to_key(9)]),
            sending(2, vec![to_key(9)]),
            sending(3, vec![start(4, "d", false)]),
        ];
        assert_eq!(waves(to_one.iter()), [1, 1, 1]);
        assert_ne!(ShardId::of("a"), ShardId(0), "the shard of the others");
        assert_eq!(waves([sending(1, vec![to_id("a")]), ending(2)].iter()), [1, 1]);
    }

    #[test]
    fn s2_members_that_may_meet_are_in_different_waves() {
        let insert = |number, id| Commit { insert: Some(row(number, id)), ..member(number) };
        let reply =
            |number| Commit { replies: vec![RequestReply { number: 5, body: body() }], ..member(number) };
        let pairs = [
            (member(1), member(1)),
            (member(1), sending(2, vec![to_key(1)])),
            (sending(2, vec![to_key(1)]), member(1)),
            (insert(1, "a"), insert(2, "a")),
            (insert(1, "a"), sending(2, vec![to_id("a")])),
            (sending(2, vec![to_id("a")]), sending(1, vec![start(3, "a", false)])),
            (sending(1, vec![start(3, "a", false)]), sending(2, vec![to_key(3)])),
            (sending(1, vec![to_id("a")]), Commit { shard: ShardId::of("a"), ..ending(2) }),
            (Commit { shard: ShardId::of("a"), ..ending(2) }, sending(1, vec![to_id("a")])),
            (member(1), sending(2, vec![start(3, "a", true)])),
            (sending(2, vec![start(3, "a", true)]), member(1)),
            (reply(1), reply(2)),
            (Commit { consumed: vec![7], ..member(1) }, Commit { seen: vec![7], ..member(2) }),
        ];
        for (one, two) in pairs {
            assert_eq!(waves([&one, &two].into_iter()), [1, 2], "{one:?} and {two:?}");
        }
    }

    #[test]
    fn s2_messages_come_after_the_starts_they_need_and_before_those_they_precede() {
        let pairs: Vec<Outgoing> =
            (1..=9).flat_map(|n| [start(n, &format!("i{n}"), false), to_key(n)]).collect();
        assert_eq!(stages(&pairs), [0, 1].repeat(9), "all starts first, then all messages");
        assert_eq!(stages(&[to_id("a"), start(1, "a", false), to_id("a")]), [1, 2, 3]);
        assert_eq!(stages(&[start(1, "a", false), start(2, "a", false), to_id("a")]), [0, 2, 3]);
        assert_eq!(stages(&[to_key(7), start(1, "a", true), to_key(8), start(2, "b", false)]), [1, 2, 3, 2]);
        assert_eq!(stages(&[start(1, "a", false), start(2, "b", true)]), [0, 2]);
    }
}
