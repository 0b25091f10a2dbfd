//! External events by name, and the waits and handlers that receive them.
//!
//! The i-th open wait of a name holds the i-th unread event of that name. An event is removed when its wait returns it;
//! a dropped wait leaves its event in place, so that later waits move up to it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::flaws::{self, Flaw};
use crate::history::{EventId, Job, Payload, TraceContext};

use super::operations::Token;
use super::scheduler::UnitFuture;

/// Starts the handling of one event or update.
pub(crate) type EventHandler = Arc<dyn Fn(Payload) -> UnitFuture + Send + Sync>;

#[derive(Default)]
pub(crate) struct Mailbox {
    channels: BTreeMap<String, Channel>,
    /// The number of unread events of all names.
    unread: usize,
}

#[derive(Default)]
struct Channel {
    unread: VecDeque<Arrived>,
    waits: VecDeque<Token>,
    handler: Option<EventHandler>,
}

#[derive(Clone)]
pub(crate) struct Arrived {
    pub(crate) id: EventId,
    pub(crate) payload: Payload,
    pub(crate) key: Option<String>,
    pub(crate) trace: Option<Box<TraceContext>>,
}

/// What happens with an event that arrived.
pub(crate) enum Arrival {
    /// It is kept until the code asks for it.
    Kept,
    /// It is held for this wait.
    HeldFor(Token),
    /// It starts this handler.
    Handle(EventHandler, Payload),
}

impl Mailbox {
    /// Whether a handler receives the events of this name.
    pub(crate) fn has_handler(&self, name: &str) -> bool {
        self.channels.get(name).is_some_and(|channel| channel.handler.is_some())
    }

    /// Whether a handler receives the events of any name.
    pub(crate) fn has_handlers(&self) -> bool {
        self.channels.values().any(|channel| channel.handler.is_some())
    }

    /// The names whose events a handler or an open wait receives.
    pub(crate) fn taken_names(&self) -> Vec<String> {
        let is_taken =
            |channel: &Channel| channel.handler.is_some() || channel.waits.len() > channel.unread.len();
        let taken = self.channels.iter().filter(|(_, channel)| is_taken(channel));
        taken.map(|(name, _)| name.clone()).collect()
    }

    /// Whether there are open waits for events of this name.
    pub(crate) fn has_waits(&self, name: &str) -> bool {
        self.channels.get(name).is_some_and(|channel| !channel.waits.is_empty())
    }

    /// The number of kept events of this name that no wait holds.
    pub(crate) fn unclaimed(&self, name: &str) -> usize {
        let channel = self.channels.get(name);
        channel.map_or(0, |channel| channel.unread.len().saturating_sub(channel.waits.len()))
    }

    /// The wait that would hold the next event of this name, if `before` others arrive first. `None` if the name has a
    /// handler.
    pub(crate) fn next_wait(&self, name: &str, before: usize) -> Option<Token> {
        let channel = self.channels.get(name)?;
        channel.waits.get(channel.unread.len() + before).copied()
    }

    pub(crate) fn arrive(&mut self, name: &str, arrived: Arrived) -> Arrival {
        if flaws::is(Flaw::EarlyEventsLost) && !self.has_handler(name) && self.next_wait(name, 0).is_none() {
            return Arrival::Kept;
        }
        if let Some(channel) = self.channels.get_mut(name) {
            if let Some(handler) = &channel.handler {
                return Arrival::Handle(Arc::clone(handler), arrived.payload);
            }
            let wait = channel.waits.get(channel.unread.len()).copied();
            channel.unread.push_back(arrived);
            self.unread += 1;
            return wait.map_or(Arrival::Kept, Arrival::HeldFor);
        }
        self.channels.entry(name.to_owned()).or_default().unread.push_back(arrived);
        self.unread += 1;
        Arrival::Kept
    }

    pub(crate) fn subscribe(&mut self, name: &str, wait: Token) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.waits.push_back(wait);
        } else {
            self.channels.entry(name.to_owned()).or_default().waits.push_back(wait);
        }
    }

    /// The event that a wait holds.
    pub(crate) fn held_by(&self, name: &str, wait: Token) -> Option<EventId> {
        let channel = self.channels.get(name)?;
        let position = channel.waits.iter().position(|other| *other == wait)?;
        channel.unread.get(position).map(|arrived| arrived.id)
    }

    /// Removes the event that a wait holds, and the wait.
    pub(crate) fn take(&mut self, name: &str, wait: Token) -> Option<Arrived> {
        let channel = self.channels.get_mut(name)?;
        let position = channel.waits.iter().position(|other| *other == wait)?;
        let arrived = channel.unread.remove(position)?;
        self.unread -= 1;
        channel.waits.remove(position);
        self.tidy(name);
        Some(arrived)
    }

    /// Removes a wait. Returns the wait that now holds an event and did not before.
    pub(crate) fn unsubscribe(&mut self, name: &str, wait: Token) -> Option<Token> {
        let channel = self.channels.get_mut(name)?;
        let position = channel.waits.iter().position(|other| *other == wait)?;
        channel.waits.remove(position);
        if flaws::is(Flaw::EatenEvents) && channel.unread.remove(position).is_some() {
            self.unread -= 1;
        }
        let served = channel.unread.len();
        let moved_up = if position < served { channel.waits.get(served - 1).copied() } else { None };
        self.tidy(name);
        moved_up
    }

    /// Whether an event is kept or held, and unread.
    pub(crate) fn has_unread(&self, event: EventId) -> bool {
        self.channels.values().any(|channel| channel.unread.iter().any(|arrived| arrived.id == event))
    }

    /// Removes an event, whether kept or held. The next one of its name takes its place. Returns whether it existed.
    pub(crate) fn skip(&mut self, event: EventId) -> bool {
        let found = self.channels.iter().find_map(|(name, channel)| {
            let position = channel.unread.iter().position(|arrived| arrived.id == event)?;
            Some((name.clone(), position))
        });
        let Some((name, position)) = found else { return false };
        if let Some(channel) = self.channels.get_mut(&name) {
            channel.unread.remove(position);
            self.unread -= 1;
        }
        self.tidy(&name);
        true
    }

    /// Installs a handler for the events of a name. Returns the events that were kept.
    pub(crate) fn install(&mut self, name: &str, handler: EventHandler) -> VecDeque<Arrived> {
        let channel = self.channels.entry(name.to_owned()).or_default();
        channel.handler = Some(handler);
        let kept = std::mem::take(&mut channel.unread);
        self.unread -= kept.len();
        kept
    }

    /// The number of unread events.
    pub(crate) fn unread_count(&self) -> usize {
        self.unread
    }

    /// The handlers, to be dropped where user code may run.
    pub(crate) fn take_handlers(&mut self) -> Vec<EventHandler> {
        self.channels.values_mut().filter_map(|channel| channel.handler.take()).collect()
    }

    /// The unread events.
    pub(crate) fn unread(&self) -> impl Iterator<Item = (EventId, Job)> + '_ {
        self.channels.iter().flat_map(|(name, channel)| {
            channel.unread.iter().map(move |arrived| {
                let Arrived { id, payload, key, trace } = arrived.clone();
                (id, Job::ExternalEvent { name: name.clone(), payload, key, trace })
            })
        })
    }

    fn tidy(&mut self, name: &str) {
        if let Some(channel) = self.channels.get(name)
            && channel.unread.is_empty()
            && channel.waits.is_empty()
            && channel.handler.is_none()
        {
            self.channels.remove(name);
        }
    }
}
