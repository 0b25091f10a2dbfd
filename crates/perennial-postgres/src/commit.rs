//! Commits a batch: with one statement if it is plain, otherwise with one call of `commit_batch`.

use std::sync::LazyLock;

use perennial_core::ShardId;
use perennial_core::store::{
    Changes, Commit, CommitOutcome, Conflict, InboxNumber, Outgoing, SessionId, ShardSet, Status, StoreError,
    TaskChange, TaskState,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::batch::Batch;
use crate::connection::{Argument, is_lost};
use crate::failure::{Access, CallError, classify};
use crate::plain_batch::PlainBatch;
use crate::row::{column, number, read_instance};
use crate::store::Inner;

/// Upper bound on the size of one call. The server accepts a gigabyte, but needs as much memory again to process it.
const MAX_BYTES: u64 = 256 << 20;

/// Upper bound on the rows of one transaction, so that other transactions do not wait long for its locks. A single
/// member may have more, since it cannot be divided.
const MAX_ROWS: usize = 100_000;

/// The call with the first `count` parameters of the function.
fn call_with(count: usize) -> String {
    let parameters: Vec<String> = (1..=count).map(|number| format!("${number}")).collect();
    format!("SELECT * FROM @.commit_batch({})", parameters.join(", "))
}

/// The forms of the call that [`Batch::arguments`] has arguments for.
static STEPS: LazyLock<String> = LazyLock::new(|| call_with(15));
static ROWS: LazyLock<String> = LazyLock::new(|| call_with(47));
static ALL: LazyLock<String> = LazyLock::new(|| call_with(99));

pub(crate) async fn commit(
    inner: &Inner,
    session: SessionId,
    commits: &[Commit],
) -> Result<Vec<CommitOutcome>, StoreError> {
    if let Some(outcomes) = commit_plain(inner, session, commits).await? {
        return Ok(outcomes);
    }
    let (batch, checked) = Batch::of(commits);
    if batch.len() == 0 {
        return Ok(checked.into_iter().filter_map(Result::err).map(CommitOutcome::Rejected).collect());
    }
    if let Err(reason) = bounds(commits) {
        return refused(commits, reason);
    }
    let (id, at) = (Uuid::from_u128(session.0), inner.at());
    let mut arguments: Vec<Argument<'_>> = vec![(&id, Type::UUID), (&at, Type::INT8)];
    arguments.extend(batch.arguments());
    let sql: &'static str = match arguments.len() {
        15 => &STEPS,
        47 => &ROWS,
        _ => &ALL,
    };
    let rows = match inner.call(sql, &arguments, Access::Commits).await {
        Ok(rows) => rows,
        Err(CallError::Refused(reason)) => return refused(commits, reason),
        Err(error) => return Err(error.into_error()),
    };
    let answer = Response::read(&rows, batch.len())?;
    let mut codes = answer.codes.into_iter();
    let mut sent = answer.sent.into_iter();
    let mut changes = Changes::default();
    let mut outcomes = Vec::with_capacity(commits.len());
    for (member, checked) in commits.iter().zip(checked) {
        if let Err(reason) = checked {
            outcomes.push(CommitOutcome::Rejected(reason));
            continue;
        }
        let numbers: Vec<Option<InboxNumber>> = sent.by_ref().take(member.send.len()).collect();
        let outcome = codes.next().unwrap_or(Ok(CommitOutcome::Durable { sent: Vec::new() }))?;
        outcomes.push(match outcome {
            CommitOutcome::Durable { .. } => {
                add_hints(member, &numbers, &answer.owned, &mut changes);
                CommitOutcome::Durable { sent: numbers }
            }
            other => other,
        });
    }
    inner.hints.notify(&changes);
    Ok(outcomes)
}

/// Commits a batch with one statement if it is plain and nothing prevents any of its members from being written.
async fn commit_plain(
    inner: &Inner,
    session: SessionId,
    commits: &[Commit],
) -> Result<Option<Vec<CommitOutcome>>, StoreError> {
    let options = &inner.target.options;
    // The settings that keep the statement's plan belong to a connection, which a pooler shares.
    if options.pooler || options.read_only || bounds(commits).is_err() {
        return Ok(None);
    }
    let Some(batch) = PlainBatch::of(session, commits) else { return Ok(None) };
    let written = {
        let mut connection = inner.pool.get_for_commit().await?;
        connection.execute(batch.statement(), &batch.arguments().0).await
    };
    match written {
        Ok(0) => Ok(None),
        Ok(_) => {
            let mut changes = Changes::default();
            commits.iter().for_each(|member| add_hints(member, &[], &ShardSet::EMPTY, &mut changes));
            inner.hints.notify(&changes);
            Ok(Some(commits.iter().map(|_| CommitOutcome::Durable { sent: Vec::new() }).collect()))
        }
        // The transaction was rolled back.
        Err(error) if !is_lost(&error) => Ok(None),
        Err(error) => Err(classify(&error, Access::Commits).into_error()),
    }
}

/// Checks that a batch is not too large for one transaction.
fn bounds(commits: &[Commit]) -> Result<(), String> {
    let rows: usize = commits.iter().map(rows_of).sum();
    if rows > MAX_ROWS && commits.len() > 1 {
        return Err(format!("{rows} rows are too many for one transaction"));
    }
    let weight: u64 = commits.iter().map(Commit::weight).sum();
    if weight > MAX_BYTES {
        return Err(format!("{weight} bytes are too many for one transaction"));
    }
    Ok(())
}

/// Approximate number of rows that a member touches.
fn rows_of(member: &Commit) -> usize {
    let Commit { more_turns, consumed, seen, tasks, replies, send, .. } = member;
    2 + more_turns.len() + consumed.len() + seen.len() + tasks.len() + replies.len() + 2 * send.len()
}

/// Rejects a batch of one. A larger batch is refused as a whole, and the caller retries it in halves until the commit
/// that cannot be stored is on its own.
fn refused(commits: &[Commit], reason: String) -> Result<Vec<CommitOutcome>, StoreError> {
    match commits {
        [_] => Ok(vec![CommitOutcome::Rejected(reason)]),
        _ => Err(StoreError::BatchRefused(reason)),
    }
}

/// Decoded result of the function. It returns no row if all members are durable and sent nothing.
struct Response {
    /// The outcome of each member that was passed; its `sent` is still empty.
    codes: Vec<Result<CommitOutcome, StoreError>>,
    /// Inbox numbers of all outgoing messages, for all members in order.
    sent: Vec<Option<InboxNumber>>,
    /// The shards that the session owns; empty if the batch has no messages.
    owned: ShardSet,
}

impl Response {
    fn read(rows: &[Row], members: usize) -> Result<Response, StoreError> {
        let durable = || Ok(CommitOutcome::Durable { sent: Vec::new() });
        let mut answer = Response {
            codes: (0..members).map(|_| durable()).collect(),
            sent: Vec::new(),
            owned: ShardSet::EMPTY,
        };
        for row in rows {
            let member: i32 = column(row, 0)?;
            let place = usize::try_from(member).ok().and_then(|member| member.checked_sub(1));
            match place {
                None => {
                    let numbers: Vec<Option<i64>> = column(row, 2)?;
                    let numbers = numbers.into_iter().map(|sent| sent.map(number).transpose());
                    answer.sent = numbers.collect::<Result<_, _>>()?;
                    let owned: Option<Vec<i16>> = column(row, 3)?;
                    let shards =
                        owned.unwrap_or_default().into_iter().filter_map(|shard| u8::try_from(shard).ok());
                    answer.owned = shards.map(ShardId).collect();
                }
                Some(place) => {
                    let outcome = outcome(column(row, 1)?, row);
                    if let Some(code) = answer.codes.get_mut(place) {
                        *code = outcome;
                    }
                }
            }
        }
        Ok(answer)
    }
}

fn outcome(code: i16, row: &Row) -> Result<CommitOutcome, StoreError> {
    let conflict = |conflict| Ok(CommitOutcome::Conflict(conflict));
    match code {
        0 | 8 => Ok(CommitOutcome::Durable { sent: Vec::new() }),
        1 => Ok(CommitOutcome::Fenced),
        2 => conflict(Conflict::IdTaken(Box::new(read_instance(row, 4)?))),
        3 => conflict(Conflict::OtherTurn),
        4 => conflict(Conflict::MissingTurn),
        5 => conflict(Conflict::NoInstance),
        6 => conflict(Conflict::MessageGone),
        7 => conflict(Conflict::EarlierMessage),
        9 => Ok(CommitOutcome::Rejected("the key belongs to another instance".to_owned())),
        other => Err(StoreError::CorruptRow(format!("unknown outcome {other} of a member"))),
    }
}

/// Collects the hints for other processes that a member causes. Messages to the session's own shards need no hint:
/// their owner learns of them from the outcome.
fn add_hints(member: &Commit, sent: &[Option<InboxNumber>], owned: &ShardSet, changes: &mut Changes) {
    for change in &member.tasks {
        if let TaskChange::Put(row) = change
            && row.state == TaskState::Queued
        {
            changes.tasks.insert(row.shard);
        }
    }
    if !member.replies.is_empty() {
        changes.replies.insert(member.shard);
    }
    let status = member.change.status.or(member.insert.as_ref().map(|row| row.status));
    if member.change.published.is_some() || status.is_some_and(Status::is_final) {
        changes.endings.insert(member.shard);
    }
    for (message, number) in member.send.iter().zip(sent) {
        let (shard, is_urgent) = match message {
            Outgoing::ToKey { shard, urgent, .. } => (*shard, *urgent),
            Outgoing::ToId { id, urgent, .. } => (ShardId::of(id), *urgent),
            Outgoing::Start { row, .. } => (row.shard, false),
        };
        // An urgent message that is a duplicate may have marked the stored message as urgent.
        if (number.is_some() || is_urgent) && !owned.contains(shard) {
            changes.inbox.insert(shard);
        }
    }
}
