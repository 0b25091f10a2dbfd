//! One instance of a stream: its turns in order, through continue-as-new, deletion and new use of its id.

use std::collections::VecDeque;

use perennial::history::Turn;
use perennial::{Client, ClientError, InstanceKey, InstanceView};
use serde::Serialize;

use super::place::Place;
use super::{End, Writer};
use crate::problem::Problem;
use crate::redact;
use crate::routes::histories::{DEFAULT_PAYLOAD_BYTES, write_turn};

/// How many turns are read at a time: a slow reader must not fill the memory.
const CHUNK: usize = 20;

pub(crate) struct InstanceTopic {
    id: String,
    /// After the last turn that was sent.
    place: Option<Place>,
    /// Turns that were read and not yet sent.
    read: VecDeque<Turn>,
    /// The row that was last sent.
    row: Option<InstanceView>,
    /// Whether the reader knows that there is no such instance.
    is_gone: bool,
}

/// Something new about an instance.
pub(crate) enum News {
    Turn {
        key: InstanceKey,
        execution: u64,
        turn: Box<Turn>,
    },
    /// The row has changed.
    Row(Box<InstanceView>),
    /// Another instance has the id now; its history follows.
    Reset(InstanceKey),
    /// There is no instance with the id.
    Gone,
    /// Executions were deleted before they were sent.
    Pruned {
        key: InstanceKey,
        from: u64,
        before: u64,
    },
}

impl InstanceTopic {
    pub(crate) fn new(id: &str, place: Option<Place>) -> InstanceTopic {
        InstanceTopic { id: id.to_owned(), place, read: VecDeque::new(), row: None, is_gone: false }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn place(&self) -> Option<Place> {
        self.place
    }

    /// What comes next; `None` if the reader knows everything.
    pub(crate) async fn next(&mut self, client: &Client) -> Result<Option<News>, Problem> {
        loop {
            if let (Some(turn), Some(place)) = (self.read.pop_front(), &mut self.place) {
                place.turn = turn.number;
                let (key, execution) = (place.key, place.execution);
                return Ok(Some(News::Turn { key, execution, turn: Box::new(turn) }));
            }
            let view = match client.status(&self.id).await {
                Ok(view) => view,
                Err(ClientError::NotFound { .. }) => {
                    let is_new = !std::mem::replace(&mut self.is_gone, true);
                    (self.row, self.place) = (None, None);
                    return Ok(is_new.then_some(News::Gone));
                }
                Err(error) => return Err(error.into()),
            };
            let bound = client.bound_to(view.key);
            let Some(place) = self.place.filter(|place| place.key == view.key) else {
                let first = match bound.executions(&self.id).await {
                    Ok(stored) => *stored.start(),
                    Err(error) if is_over(&error) => continue,
                    Err(error) => return Err(error.into()),
                };
                let is_reset = self.is_gone || self.place.is_some();
                self.place = Some(Place { key: view.key, execution: first, turn: 0 });
                (self.is_gone, self.row) = (false, None);
                match is_reset {
                    true => return Ok(Some(News::Reset(view.key))),
                    false => continue,
                }
            };
            match bound.turn_page(&self.id, place.execution, place.turn, CHUNK).await {
                Ok(page) if !page.turns.is_empty() => self.read.extend(page.turns),
                // Read after the row, so the execution is complete if a later one is current.
                Ok(_) if view.execution > place.execution => {
                    self.place = Some(Place { execution: place.execution + 1, turn: 0, ..place });
                }
                Ok(_) => return Ok(self.changed(view)),
                Err(ClientError::NoExecution { .. }) => match self.skip_deleted(&bound, place).await? {
                    Some(news) => return Ok(Some(news)),
                    None => continue,
                },
                // Deleted since its row was read.
                Err(error) if is_over(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Goes on with the oldest execution that is stored.
    async fn skip_deleted(&mut self, bound: &Client, place: Place) -> Result<Option<News>, Problem> {
        let first = match bound.executions(&self.id).await {
            Ok(stored) => *stored.start(),
            Err(error) if is_over(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let before = first.max(place.execution + 1);
        self.place = Some(Place { execution: before, turn: 0, ..place });
        Ok(Some(News::Pruned { key: place.key, from: place.execution, before }))
    }

    /// The row, if the reader does not know it.
    fn changed(&mut self, view: InstanceView) -> Option<News> {
        if self.row.as_ref() == Some(&view) {
            return None;
        }
        self.row = Some(view.clone());
        Some(News::Row(Box::new(view)))
    }
}

/// Whether the instance no longer exists.
fn is_over(error: &ClientError) -> bool {
    matches!(error, ClientError::NotFound { .. } | ClientError::AnotherInstance { .. })
}

impl News {
    pub(crate) async fn send(self, writer: &mut Writer, id: &str, cursor: &str) -> Result<(), End> {
        #[derive(Serialize)]
        struct About<'a> {
            instance: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            key: Option<InstanceKey>,
            #[serde(skip_serializing_if = "Option::is_none")]
            executions: Option<(u64, u64)>,
        }
        let cursor = Some(cursor);
        let about = |key, executions| About { instance: id, key, executions };
        match self {
            News::Turn { key, execution, turn } => {
                let name = serde_json::to_string(id).unwrap_or_default();
                let mut data =
                    format!(r#"{{"instance":{name},"key":"{key}","execution":{execution},"turn":"#)
                        .into_bytes();
                let limit = usize::try_from(DEFAULT_PAYLOAD_BYTES).unwrap_or(usize::MAX);
                write_turn(&mut data, execution, &turn, limit, writer.hides_payloads())?;
                data.push(b'}');
                writer.raw("turn", cursor, &data).await
            }
            News::Row(mut view) => {
                if writer.hides_payloads() {
                    redact::instance(&mut view);
                }
                writer.message("instance", cursor, &*view).await
            }
            News::Reset(key) => writer.message("reset", cursor, &about(Some(key), None)).await,
            News::Gone => writer.message("gone", cursor, &about(None, None)).await,
            News::Pruned { key, from, before } => {
                writer.message("pruned", cursor, &about(Some(key), Some((from, before - 1)))).await
            }
        }
    }
}
