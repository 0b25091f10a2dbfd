//! Walks over the turns of an execution, forwards or backwards, and filters of their events.

use perennial::Client;
use perennial::history::{Event, EventId, EventKind, Job, Turn};

use crate::ask::Ask;
use crate::problem::Problem;
use crate::query::Query;

/// How many turns are read at a time.
const CHUNK: u64 = 500;

/// The turns that are still to be read: those after one and before another.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) after: u64,
    pub(crate) before: u64,
    /// Whether the first of them come first.
    pub(crate) forward: bool,
}

impl Walk {
    /// The walk that a request asks for.
    pub(crate) async fn of(ask: &Ask, client: &Client, execution: u64, last: u64) -> Result<Walk, Problem> {
        let query = &ask.query;
        let after = match query.number("event") {
            Some(event) => {
                let turn = turn_with(ask, client, execution, EventId(event)).await?;
                let half = super::routes::limit(query) as u64 / 2;
                Some(turn.saturating_sub(half + 1))
            }
            None => query.number("after_turn"),
        };
        let before = query.number("before_turn");
        let forward = after.is_some() || before.is_none() && query.text("order") != Some("newest");
        let after = after.unwrap_or(0).min(last);
        Ok(Walk { after, before: before.unwrap_or(last + 1).clamp(after + 1, last + 1), forward })
    }

    /// Continues after a turn that was read, because the page has no room for those after it.
    pub(crate) fn go_back_to(&mut self, turn: u64) {
        if self.forward {
            self.after = turn;
        } else {
            self.before = turn;
        }
    }

    /// How many turns are left.
    pub(crate) fn room(&self) -> u64 {
        self.before - self.after - 1
    }

    /// The next turns, in order. Empty if there are no more.
    pub(crate) async fn next(
        &mut self,
        client: &Client,
        id: &str,
        execution: u64,
        wanted: usize,
    ) -> Result<Vec<Turn>, Problem> {
        let wanted = self.room().min(wanted as u64).min(CHUNK);
        let mut turns: Vec<Turn> = Vec::new();
        let from = if self.forward { self.after } else { self.before - 1 - wanted };
        let (mut place, end) = (from, from + wanted);
        // A page of large turns has fewer than asked for. Backwards, the last of them must not be missed.
        while place < end {
            let rows = usize::try_from(end - place).unwrap_or(usize::MAX);
            let page = client.turn_page(id, execution, place, rows).await?;
            let Some(last) = page.turns.last() else { break };
            place = last.number;
            turns.extend(page.turns);
            if self.forward {
                break;
            }
        }
        if self.forward {
            self.after = if turns.is_empty() { self.before - 1 } else { place };
        } else {
            self.before = from + 1;
        }
        Ok(turns)
    }
}

/// The number of the turn that recorded an event.
pub(crate) async fn turn_with(
    ask: &Ask,
    client: &Client,
    execution: u64,
    event: EventId,
) -> Result<u64, Problem> {
    let key = client.status(ask.id()).await?.key;
    if let Some(turn) = ask.server.histories.turn_of(key, execution, event) {
        return Ok(turn);
    }
    let found = client.find_event(ask.id(), execution, event).await?;
    let missing = || Problem::nothing(format!("execution {execution} has no event {event}"));
    Ok(found.ok_or_else(missing)?.turn)
}

/// Narrows the events of a history.
pub(crate) struct EventFilter<'a> {
    kinds: Vec<&'a str>,
    name: Option<&'a str>,
    unit: Option<&'a str>,
    failed: Option<bool>,
    pub(crate) text: Option<&'a str>,
}

impl<'a> EventFilter<'a> {
    pub(crate) fn of(query: &'a Query) -> EventFilter<'a> {
        let (name, unit, text) = (query.text("name"), query.text("unit"), query.text("text"));
        EventFilter { kinds: query.list("kinds"), name, unit, failed: query.flag("failed"), text }
    }

    fn is_empty(&self) -> bool {
        let EventFilter { kinds, name, unit, failed, text } = self;
        kinds.is_empty() && name.is_none() && unit.is_none() && failed.is_none() && text.is_none()
    }

    /// Removes all other events, and turns without events.
    pub(crate) fn narrow(&self, turns: &mut Vec<Turn>) {
        if !self.is_empty() {
            turns.iter_mut().for_each(|turn| turn.events.retain(|event| self.takes(event)));
            turns.retain(|turn| !turn.events.is_empty());
        }
    }

    fn takes(&self, event: &Event) -> bool {
        let json = || serde_json::to_string(event).unwrap_or_default();
        let has_name = |name: &str| {
            let quoted = serde_json::to_string(name).unwrap_or_default();
            let json = json();
            ["name", "instance", "id"].iter().any(|member| json.contains(&format!("\"{member}\":{quoted}")))
        };
        let unit = match &event.kind {
            EventKind::Decision { unit, .. } => Some(unit.to_string()),
            _ => None,
        };
        (self.kinds.is_empty() || self.kinds.contains(&event.kind.name()))
            && self.name.is_none_or(has_name)
            && self.unit.is_none_or(|wanted| unit.as_deref() == Some(wanted))
            && self.failed.is_none_or(|wanted| is_failure(event) == wanted)
            && self.text.is_none_or(|text| json().contains(text))
    }
}

fn is_failure(event: &Event) -> bool {
    match &event.kind {
        EventKind::Job(job) => matches!(job, Job::ActivityFailed { .. } | Job::SubOrchestrationFailed { .. }),
        EventKind::Ended(ending) => {
            ["OrchestrationFailed", "OrchestrationTerminated", "OrchestrationCancelled"]
                .contains(&ending.name())
        }
        EventKind::Started(_) | EventKind::Decision { .. } => false,
    }
}
