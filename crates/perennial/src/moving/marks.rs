//! The marks of a move in both stores.
//!
//! The source is marked before the target, and the target's mark is removed last. So whatever happens in between, a
//! target with a mark has a source with the mark of the same move, and at most one of the two stores can be used.

use std::sync::Arc;

use perennial_core::store::{MoveMark, MoveSide, MovedRow, MovedTable};

use super::refused;
use super::side::Side;
use crate::error::MoveError;

/// The marks that both stores have during the move.
pub(super) struct Marks {
    source: MoveMark,
    target: MoveMark,
    /// Whether an earlier call wrote them.
    pub(super) is_resumed: bool,
}

/// Checks that the move may begin or go on, and marks both stores.
pub(super) async fn agree(source: &Side, target: &Side) -> Result<Marks, MoveError> {
    let (here, there) = (read(source).await?, read(target).await?);
    let (id, is_resumed) = match (&here, &there) {
        (Some(mark), _) if mark.side == MoveSide::Target => {
            return Err(refused(format!("{}: {mark}", source.shown)));
        }
        (_, Some(mark)) if mark.side == MoveSide::Source => {
            return Err(refused(format!("{}: {mark}; or choose another target", target.shown)));
        }
        (Some(mark), Some(same)) if mark.id == same.id => (mark.id.clone(), true),
        (_, Some(mark)) => {
            return Err(refused(format!("{}: {mark}, or choose another target", target.shown)));
        }
        (Some(mark), None) if mark.is_done || mark.other != target.shown => {
            return Err(refused(format!("{}: {mark}", source.shown)));
        }
        // It was interrupted before the target was marked.
        (Some(mark), None) => (mark.id.clone(), true),
        (None, None) => (uuid::Uuid::new_v4().to_string(), false),
    };
    if there.is_none() {
        check_empty(target).await?;
    }
    let mark =
        |side, other: &Side| MoveMark { id: id.clone(), side, other: other.shown.clone(), is_done: false };
    let marks = Marks {
        source: here.clone().unwrap_or_else(|| mark(MoveSide::Source, target)),
        target: there.clone().unwrap_or_else(|| mark(MoveSide::Target, source)),
        is_resumed,
    };
    if here.is_none() {
        write(source, None, Some(&marks.source)).await?;
    }
    if there.is_none() {
        write(target, None, Some(&marks.target)).await?;
    }
    // Nodes that opened a session before the marks were written are found now; later ones are refused.
    let unused = match source.check_unused().await {
        Ok(_) => target.check_unused().await,
        used => used,
    };
    match unused {
        Ok(_) => Ok(marks),
        Err(error) => {
            if !is_resumed {
                write(target, Some(&marks.target), None).await?;
                write(source, Some(&marks.source), None).await?;
            }
            Err(error)
        }
    }
}

/// Marks the source as moved, then opens the target.
pub(super) async fn finish(source: &Side, target: &Side, marks: Marks) -> Result<(), MoveError> {
    let done = MoveMark { is_done: true, ..marks.source.clone() };
    write(source, Some(&marks.source), Some(&done)).await?;
    write(target, Some(&marks.target), None).await
}

/// Removes the mark of a source.
pub(super) async fn remove(side: &Side) -> Result<MoveMark, MoveError> {
    match read(side).await? {
        None => Err(refused(format!("{} was not moved; there is nothing to reopen", side.shown))),
        Some(mark) if mark.side == MoveSide::Target => Err(refused(format!("{}: {mark}", side.shown))),
        Some(mark) => {
            write(side, Some(&mark), None).await?;
            Ok(mark)
        }
    }
}

async fn read(side: &Side) -> Result<Option<MoveMark>, MoveError> {
    let value = side.setting(MoveMark::SETTING).await?;
    let mark = value.as_deref().map(MoveMark::decode).transpose();
    mark.map_err(|error| super::of_store(&side.shown, error))
}

async fn write(side: &Side, read: Option<&MoveMark>, mark: Option<&MoveMark>) -> Result<(), MoveError> {
    let encoded = |mark: &MoveMark| -> Arc<[u8]> { mark.encode() };
    side.write_setting(MoveMark::SETTING, read.map(encoded), mark.map(encoded)).await
}

/// Refuses a target that has been used: its rows would be mixed with those of the source.
async fn check_empty(target: &Side) -> Result<(), MoveError> {
    for table in MovedTable::ALL {
        let rows = target.page(table, None).await?;
        if rows.iter().any(|row| *row != MovedRow::LastMessage(0)) {
            let what = match table {
                MovedTable::Shards | MovedTable::Counters => "a runtime has used it".to_owned(),
                table => format!("it has {}", table.name()),
            };
            return Err(refused(format!(
                "{} is not empty: {what}; move to a new file or schema, or delete this one first",
                target.shown
            )));
        }
    }
    Ok(())
}
