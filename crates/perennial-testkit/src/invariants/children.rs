//! I13: one child per schedule, one outcome to its parent.
//!
//! The parent's history is compared with the child's own: its link, id, input and ending. A child that its
//! parent waits for exists, or its start is in an inbox; once it has ended, the same holds for its outcome.

use std::collections::BTreeMap;
use std::sync::Arc;

use perennial_core::shard::Message;
use perennial_core::{ChildError, Decision, Ending, EventId, EventKind, InstanceKey, Job, ParentLink, Turn};

use super::{Breach, ClientLog, Decoded, Snapshot, StoredInstance, all_events};

/// Identifies a schedule: the parent's key, execution and event.
type Place = (String, u64, EventId);

/// A schedule in a parent's history, and its outcome there.
struct Scheduled<'a> {
    decision: &'a Decision,
    outcome: Option<&'a Job>,
    cancelled: bool,
}

pub(super) fn check(
    snapshot: &Snapshot,
    all: &BTreeMap<InstanceKey, Decoded<'_>>,
    log: &ClientLog,
    found: &mut Vec<Breach>,
) {
    let mut families = Families { all, log, children: BTreeMap::new(), starts: None, found };
    for instance in &snapshot.instances {
        if let Some(link) = &instance.row.parent {
            families.children.entry(place(link)).or_default().push(instance);
        }
    }
    families.starts = snapshot.rows.as_ref().map(|rows| {
        let link = |body: &Arc<[u8]>| match Message::decode(body) {
            Ok(Message::Start(start)) => start.started.parent.as_ref().map(place),
            _ => None,
        };
        rows.inbox.iter().filter_map(|(_, body)| link(body)).collect()
    });
    for decoded in all.values() {
        families.check_links(decoded);
        if log.is_recreated(decoded.row().key) {
            continue;
        }
        for (execution, turns) in &decoded.executions {
            families.check_parent(decoded, *execution, turns);
        }
    }
}

fn place(link: &ParentLink) -> Place {
    (link.key.clone(), link.execution, link.event_id)
}

struct Families<'a> {
    all: &'a BTreeMap<InstanceKey, Decoded<'a>>,
    log: &'a ClientLog,
    children: BTreeMap<Place, Vec<&'a StoredInstance>>,
    /// The schedules whose start is in an inbox; `None` if inboxes could not be read.
    starts: Option<Vec<Place>>,
    found: &'a mut Vec<Breach>,
}

impl Families<'_> {
    fn breach(&mut self, id: &str, what: String) {
        self.found.push(Breach { invariant: "I13", instance: id.to_owned(), what });
    }

    /// Checks that a child's link is the same in its row and in all its executions, and names a schedule of
    /// its parent, if that still exists.
    fn check_links(&mut self, child: &Decoded<'_>) {
        let row = child.row();
        let started = child.executions.values().filter_map(|turns| turns.first().and_then(Turn::started));
        if started.into_iter().any(|started| started.parent != row.parent) {
            self.breach(&row.id, "its row and its history name different parents".to_owned());
        }
        let Some(link) = &row.parent else { return };
        let parent = link.key.parse::<InstanceKey>().ok().filter(|key| !self.log.is_recreated(*key));
        let parent = parent.and_then(|key| self.all.get(&key));
        let Some(turns) = parent.and_then(|parent| parent.executions.get(&link.execution)) else { return };
        let scheduled = schedules(turns).remove(&link.event_id);
        let Some(Scheduled { decision, .. }) = scheduled else {
            return self.breach(&row.id, format!("its parent has not scheduled it: {link:?}"));
        };
        let Decision::SubOrchestrationScheduled { name, version, instance, input, .. } = decision else {
            return;
        };
        let id =
            instance.clone().unwrap_or_else(|| derived_id(&link.instance, link.execution, link.event_id));
        let begun = child.executions.get(&1).and_then(|turns| turns.first()).and_then(Turn::started);
        let is_it = row.id == id
            && row.name == *name
            && begun.is_none_or(|started| {
                started.input == *input && version.as_ref().is_none_or(|asked| *asked == started.version)
            });
        if !is_it {
            self.breach(&row.id, format!("its parent scheduled another: {link:?}"));
        }
    }

    fn check_parent(&mut self, parent: &Decoded<'_>, execution: u64, turns: &[Turn]) {
        let row = parent.row();
        for (event, scheduled) in schedules(turns) {
            for starter in starters(parent, execution) {
                let children = self.children.get(&(row.key.to_string(), starter, event)).map_or(0, Vec::len);
                if children > 1 {
                    self.breach(&row.id, format!("schedule {event} has {children} children"));
                }
            }
            let is_current = execution == row.execution && !row.status.is_final();
            match scheduled.outcome {
                Some(outcome) => {
                    // After a reset, the history does not record for which of these children the outcome was.
                    let place = |starter| (row.key.to_string(), starter, event);
                    let explain =
                        |starter| self.explain_outcome(parent, &place(starter), &scheduled, outcome);
                    let is_explained = starters(parent, execution).any(|starter| explain(starter).is_none());
                    let wrong = explain(self.starter(parent, execution, event)).filter(|_| !is_explained);
                    if let Some(wrong) = wrong {
                        self.breach(&row.id, wrong);
                    }
                }
                None if is_current && !scheduled.cancelled => {
                    let place = (row.key.to_string(), self.starter(parent, execution, event), event);
                    let child = self.children.get(&place).and_then(|children| children.first()).copied();
                    self.check_open(parent, &place, &scheduled, child);
                }
                None => {}
            }
        }
    }

    /// The execution that started a child: after a reset it may be an earlier one.
    fn starter(&self, parent: &Decoded<'_>, execution: u64, event: EventId) -> u64 {
        let key = parent.row().key.to_string();
        let has_child = |starter: &u64| {
            let place = (key.clone(), *starter, event);
            let is_on_its_way = self.starts.as_ref().is_some_and(|starts| starts.contains(&place));
            self.children.contains_key(&place) || is_on_its_way
        };
        starters(parent, execution).rev().find(has_child).unwrap_or(execution)
    }

    /// Checks the outcome of a child that its parent received. Returns the violation, if there is one.
    fn explain_outcome(
        &self,
        parent: &Decoded<'_>,
        place: &Place,
        scheduled: &Scheduled<'_>,
        outcome: &Job,
    ) -> Option<String> {
        let event = place.2;
        let is_not_started =
            matches!(outcome, Job::SubOrchestrationFailed { error: ChildError::NotStarted { .. }, .. });
        let child = self.children.get(place).and_then(|children| children.first());
        match child {
            Some(child) if is_not_started => {
                Some(format!("child {} of {event} exists, but was not started", child.row.id))
            }
            Some(child) => {
                let child = self.all.get(&child.row.key)?;
                let expected =
                    child.current().last().and_then(Turn::ending).and_then(|it| as_outcome(event, it));
                // A child that was reset had another end before.
                let ends = child.executions.values().filter_map(|turns| turns.last()?.ending());
                let was_told = (1..=child.row().execution).any(|it| child.reset_of(it).is_some())
                    && (ends.filter_map(|it| as_outcome(event, it)).any(|it| it == *outcome)
                        || !child.is_whole());
                let is_it = expected.as_ref() == Some(outcome) || was_told;
                let (child, received) = (&child.row().id, outcome.name());
                (!is_it).then(|| {
                    format!("it received {received} for child {child} of {event}, which is not its end")
                })
            }
            None if is_not_started => None,
            None => {
                let is_gone = self.is_deleted(parent, place, scheduled) || self.is_replaced(scheduled);
                (!is_gone).then(|| format!("{event} has the outcome of a child that does not exist"))
            }
        }
    }

    /// Checks a child that its parent waits for.
    fn check_open(
        &mut self,
        parent: &Decoded<'_>,
        place: &Place,
        scheduled: &Scheduled<'_>,
        child: Option<&StoredInstance>,
    ) {
        let (row, event) = (parent.row(), place.2);
        let Some(messages) = parent.messages() else { return };
        let messages: Vec<Message> = messages.collect();
        let outcomes = messages.iter().filter(|message| is_outcome(message, event)).count();
        if outcomes > 1 {
            self.breach(&row.id, format!("{outcomes} outcomes of {event} wait in its inbox"));
        }
        let may_be_told = messages.iter().any(|message| is_outcome(message, event));
        match child {
            Some(child) if child.row.status.is_final() && !may_be_told => {
                self.breach(
                    &row.id,
                    format!("child {} of {event} has ended, and its outcome is missing", child.row.id),
                );
            }
            Some(_) => {}
            None => {
                let is_on_its_way = self.starts.as_ref().is_none_or(|starts| starts.contains(place));
                if !is_on_its_way && !may_be_told && !self.is_deleted(parent, place, scheduled) {
                    self.breach(
                        &row.id,
                        format!("it waits for the child of {event}, whose start is missing"),
                    );
                }
            }
        }
    }

    /// Whether another instance has the id that a child chose: it may have replaced one that had ended.
    fn is_replaced(&self, scheduled: &Scheduled<'_>) -> bool {
        let Decision::SubOrchestrationScheduled { instance: Some(id), .. } = scheduled.decision else {
            return false;
        };
        self.all.values().any(|instance| instance.row().id == *id)
    }

    fn is_deleted(&self, parent: &Decoded<'_>, place: &Place, scheduled: &Scheduled<'_>) -> bool {
        match scheduled.decision {
            Decision::SubOrchestrationScheduled { instance: Some(id), .. } => self.log.is_deleted(id),
            _ => self.log.is_deleted(&derived_id(&parent.row().id, place.1, place.2)),
        }
    }
}

/// The executions that may have started a child of this one: after a reset, it may be an earlier one.
fn starters(parent: &Decoded<'_>, execution: u64) -> std::ops::RangeInclusive<u64> {
    let first = if parent.reset_of(execution).is_some() { 1 } else { execution };
    first..=execution
}

fn derived_id(parent: &str, execution: u64, event: EventId) -> String {
    format!("{parent}::{execution}.{event}")
}

fn schedules(turns: &[Turn]) -> BTreeMap<EventId, Scheduled<'_>> {
    let mut scheduled = BTreeMap::new();
    for (_, event) in all_events(turns) {
        match &event.kind {
            EventKind::Decision {
                decision: decision @ Decision::SubOrchestrationScheduled { .. }, ..
            } => {
                scheduled.insert(event.id, Scheduled { decision, outcome: None, cancelled: false });
            }
            EventKind::Decision {
                decision: Decision::SubOrchestrationCancelRequested { source_event_id },
                ..
            } => {
                if let Some(child) = scheduled.get_mut(source_event_id) {
                    child.cancelled = true;
                }
            }
            EventKind::Job(job) => {
                if let Some(child) = job.source_event_id().and_then(|source| scheduled.get_mut(&source)) {
                    // I5 checks that there is only one.
                    child.outcome.get_or_insert(job);
                }
            }
            _ => {}
        }
    }
    scheduled
}

/// The outcome that a parent receives for a child's end.
fn as_outcome(source_event_id: EventId, ending: &Ending) -> Option<Job> {
    let error = match ending.clone() {
        Ending::OrchestrationCompleted { output: result } => {
            return Some(Job::SubOrchestrationCompleted { source_event_id, result });
        }
        Ending::OrchestrationContinuedAsNew { .. } => return None,
        Ending::OrchestrationFailed { error } => ChildError::Application(error),
        Ending::OrchestrationCancelled { reason, output } => ChildError::Cancelled { reason, output },
        Ending::OrchestrationTerminated { reason } => ChildError::Terminated { reason },
    };
    Some(Job::SubOrchestrationFailed { source_event_id, error })
}

fn is_outcome(message: &Message, event: EventId) -> bool {
    matches!(message, Message::Outcome { job, .. } if job.source_event_id() == Some(event))
}
