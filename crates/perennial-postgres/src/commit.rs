//! Batches of commits: one call of `commit_batch`.

use perennial_core::ShardId;
use perennial_core::store::{
    Changes, Commit, CommitOutcome, Conflict, InboxNumber, Outgoing, SessionId, ShardSet, Status, StoreError,
    TaskChange, TaskState,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::batch::Batch;
use crate::connection::Argument;
use crate::failure::{Access, Trouble};
use crate::row::{column, number, read_instance};
use crate::store::Inner;

/// More bytes than this are not sent at once: the server takes a gigabyte, and needs as much again to work on it.
const MOST_BYTES: u64 = 256 << 20;

/// Nobody waits behind a transaction of more rows than this; one member may have more, since it cannot be divided.
const MOST_ROWS: usize = 100_000;

/// The function with all its parameters.
const COMMIT: &str = "SELECT * FROM @.commit_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
     $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, \
     $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, \
     $63, $64, $65, $66, $67, $68, $69, $70, $71, $72, $73, $74, $75, $76, $77, $78, $79, $80, $81, $82, $83, $84, $85, \
     $86, $87, $88, $89, $90, $91, $92, $93, $94, $95, $96, $97)";

pub(crate) async fn commit(
    inner: &Inner,
    session: SessionId,
    commits: &[Commit],
) -> Result<Vec<CommitOutcome>, StoreError> {
    let (batch, checked) = Batch::of(commits);
    if batch.len() == 0 {
        return Ok(checked.into_iter().filter_map(Result::err).map(CommitOutcome::Rejected).collect());
    }
    let rows: usize = commits.iter().map(rows_of).sum();
    if rows > MOST_ROWS && commits.len() > 1 {
        return refused(commits, format!("{rows} rows are too many for one transaction"));
    }
    let weight: u64 = commits.iter().map(Commit::weight).sum();
    if weight > MOST_BYTES {
        return refused(commits, format!("{weight} bytes are too many for one transaction"));
    }
    let (id, at) = (Uuid::from_u128(session.0), inner.at());
    let mut arguments: Vec<Argument<'_>> = vec![(&id, Type::UUID), (&at, Type::INT8)];
    arguments.extend(batch.arguments());
    let rows = match inner.call(COMMIT, &arguments, Access::Writes).await {
        Ok(rows) => rows,
        Err(Trouble::Refused(reason)) => return refused(commits, reason),
        Err(trouble) => return Err(trouble.into_error()),
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
                tell(member, &numbers, &answer.owned, &mut changes);
                CommitOutcome::Durable { sent: numbers }
            }
            other => other,
        });
    }
    inner.hints.tell(&changes);
    Ok(outcomes)
}

/// About how many rows a member touches.
fn rows_of(member: &Commit) -> usize {
    let Commit { more_turns, consumed, seen, tasks, replies, send, .. } = member;
    2 + more_turns.len() + consumed.len() + seen.len() + tasks.len() + replies.len() + 2 * send.len()
}

/// A batch that cannot be stored is tried in halves, until the culprit stands alone.
fn refused(commits: &[Commit], reason: String) -> Result<Vec<CommitOutcome>, StoreError> {
    match commits {
        [_] => Ok(vec![CommitOutcome::Rejected(reason)]),
        _ => Err(StoreError::BatchRefused(reason)),
    }
}

/// What the function says.
struct Response {
    /// What became of each member that was sent; `sent` is empty here.
    codes: Vec<Result<CommitOutcome, StoreError>>,
    /// The numbers of all messages, of all members that were sent.
    sent: Vec<Option<InboxNumber>>,
    /// The session's shards, if there were messages.
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
        other => Err(StoreError::CorruptRow(format!("a member has the outcome {other}, which nobody knows"))),
    }
}

/// What others are to hear of a member. What it sent to the session's own shards its owner learns from the outcome.
fn tell(member: &Commit, sent: &[Option<InboxNumber>], owned: &ShardSet, changes: &mut Changes) {
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
        // An urgent one that was not sent may have made urgent what waits.
        if (number.is_some() || is_urgent) && !owned.contains(shard) {
            changes.inbox.insert(shard);
        }
    }
}
