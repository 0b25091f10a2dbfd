//! One instance of a stream: its turns in order, through continue-as-new, deletion and new use of its id.

use std::collections::VecDeque;
use std::sync::Arc;

use perennial::history::Turn;
use perennial::{Client, ClientError, InstanceKey, InstanceView};
use serde::Serialize;

use super::hub::Source;
use super::place::Place;
use super::{End, Writer};
use crate::problem::Problem;
use crate::redact;
use crate::routes::histories::{DEFAULT_PAYLOAD_BYTES, write_turn};

/// How many turns, and how many bytes of them, are read at a time: a slow reader must not fill the memory.
const CHUNK: (usize, u64) = (20, 64 << 10);
/// How many of the last turns all streams of an instance share.
const RECENT: usize = 20;

/// Where an instance stands, for all streams that follow it.
#[derive(Debug)]
pub(crate) struct Tip {
    /// `None` if no instance has the id.
    now: Option<Now>,
}

#[derive(Clone, Debug)]
struct Now {
    view: Arc<InstanceView>,
    /// After the last turn.
    place: Place,
    /// The last turns, with their executions.
    recent: VecDeque<(u64, Arc<Turn>)>,
}

/// Reads an instance for all streams that follow it.
pub(crate) struct TipSource {
    client: Client,
    id: String,
    known: Option<Option<Now>>,
}

impl TipSource {
    pub(crate) fn new(client: &Client, id: &str) -> TipSource {
        TipSource { client: client.clone(), id: id.to_owned(), known: None }
    }

    /// The instance after its new turns; `None` if it was deleted meanwhile and has to be read again.
    async fn brought_forward(&self, view: InstanceView) -> Result<Option<Now>, Problem> {
        let (bound, id) = (self.client.bound_to(view.key), self.id.as_str());
        let known = self.known.clone().flatten().filter(|known| known.place.key == view.key);
        let Some(Now { mut place, mut recent, .. }) = known else {
            let turn = match bound.last_turn(id, view.execution).await {
                Err(error) if is_over(&error) => return Ok(None),
                turn => turn?,
            };
            let place = Place { key: view.key, execution: view.execution, turn };
            return Ok(Some(Now { view: Arc::new(view), place, recent: VecDeque::new() }));
        };
        loop {
            match bound.turn_page_within(id, place.execution, place.turn, CHUNK.0, CHUNK.1).await {
                Ok(page) if !page.turns.is_empty() => {
                    place.turn = page.turns.last().map_or(place.turn, |turn| turn.number);
                    recent.extend(page.turns.into_iter().map(|turn| (place.execution, Arc::new(turn))));
                    while recent.len() > RECENT {
                        recent.pop_front();
                    }
                    if !page.more && view.execution == place.execution {
                        break;
                    }
                }
                // Read after the row, so the execution is complete if a later one is current.
                Ok(_) if view.execution > place.execution => {
                    place = Place { execution: place.execution + 1, turn: 0, ..place };
                }
                Ok(_) => break,
                Err(ClientError::NoExecution { .. }) => {
                    recent.clear();
                    place = Place { execution: view.execution, turn: 0, ..place };
                }
                Err(error) if is_over(&error) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(Now { view: Arc::new(view), place, recent }))
    }
}

impl Source for TipSource {
    type Value = Tip;

    async fn read(&mut self) -> Result<Option<Tip>, Problem> {
        let now = loop {
            match self.client.status(&self.id).await {
                Ok(view) => match self.brought_forward(view).await? {
                    Some(now) => break Some(now),
                    // Deleted since its row was read.
                    None => continue,
                },
                Err(ClientError::NotFound { .. }) => break None,
                Err(error) => return Err(error.into()),
            }
        };
        let is_known = match (&self.known, &now) {
            (Some(Some(known)), Some(now)) => known.place == now.place && known.view == now.view,
            (Some(None), None) => true,
            _ => false,
        };
        self.known = Some(now.clone());
        Ok((!is_known).then_some(Tip { now }))
    }
}

pub(crate) struct InstanceTopic {
    id: String,
    /// After the last turn that was sent.
    place: Option<Place>,
    /// Turns that were read and not yet sent.
    read: VecDeque<Arc<Turn>>,
    /// The row that was last sent.
    row: Option<Arc<InstanceView>>,
    /// Whether the reader knows that there is no such instance.
    is_gone: bool,
}

/// Something new about an instance.
pub(crate) enum News {
    Turn {
        key: InstanceKey,
        execution: u64,
        turn: Arc<Turn>,
    },
    /// The row has changed.
    Row(Arc<InstanceView>),
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
    pub(crate) async fn next(&mut self, client: &Client, tip: &Tip) -> Result<Option<News>, Problem> {
        loop {
            if let (Some(turn), Some(place)) = (self.read.pop_front(), &mut self.place) {
                place.turn = turn.number;
                let (key, execution) = (place.key, place.execution);
                return Ok(Some(News::Turn { key, execution, turn }));
            }
            let Some(Now { view, place: last, recent }) = &tip.now else {
                let is_new = !std::mem::replace(&mut self.is_gone, true);
                (self.row, self.place) = (None, None);
                return Ok(is_new.then_some(News::Gone));
            };
            let bound = client.bound_to(view.key);
            let Some(place) = self.place.filter(|place| place.key == view.key) else {
                let first = match bound.executions(&self.id).await {
                    Ok(stored) => *stored.start(),
                    // The next tip says what happened.
                    Err(error) if is_over(&error) => return Ok(None),
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
            if (place.execution, place.turn) >= (last.execution, last.turn) {
                return Ok(self.changed(view));
            }
            let follows = |(execution, turn): &&(u64, Arc<Turn>)| {
                *execution == place.execution && turn.number > place.turn
            };
            let shared: Vec<Arc<Turn>> =
                recent.iter().filter(follows).map(|(_, turn)| Arc::clone(turn)).collect();
            if shared.first().is_some_and(|turn| turn.number == place.turn + 1) {
                self.read.extend(shared);
                continue;
            }
            match bound.turn_page_within(&self.id, place.execution, place.turn, CHUNK.0, CHUNK.1).await {
                Ok(page) if !page.turns.is_empty() => self.read.extend(page.turns.into_iter().map(Arc::new)),
                // Read after the row, so the execution is complete if a later one is current.
                Ok(_) if view.execution > place.execution => {
                    self.place = Some(Place { execution: place.execution + 1, turn: 0, ..place });
                }
                Ok(_) => return Ok(self.changed(view)),
                Err(ClientError::NoExecution { .. }) => match self.skip_deleted(&bound, place).await? {
                    Some(news) => return Ok(Some(news)),
                    None => return Ok(None),
                },
                Err(error) if is_over(&error) => return Ok(None),
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
    fn changed(&mut self, view: &Arc<InstanceView>) -> Option<News> {
        if self.row.as_ref() == Some(view) {
            return None;
        }
        self.row = Some(Arc::clone(view));
        Some(News::Row(Arc::clone(view)))
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
            News::Row(view) => {
                let mut view = view.as_ref().clone();
                if writer.hides_payloads() {
                    redact::instance(&mut view);
                }
                writer.message("instance", cursor, &view).await
            }
            News::Reset(key) => writer.message("reset", cursor, &about(Some(key), None)).await,
            News::Gone => writer.message("gone", cursor, &about(None, None)).await,
            News::Pruned { key, from, before } => {
                writer.message("pruned", cursor, &about(Some(key), Some((from, before - 1)))).await
            }
        }
    }
}
