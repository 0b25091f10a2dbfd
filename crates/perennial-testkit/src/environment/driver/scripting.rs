//! Executes the script of a test.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::shard::{CallReply, Response};
use perennial_core::store::InstanceRow;
use perennial_core::{Decision, EventKind, Job};

use super::super::script::{Action, SentRequest, When};
use super::{BEGIN_MS, Driver};

impl Driver {
    /// Executes the first due action of the script. Returns whether there was one.
    pub(super) fn play_script(&mut self) -> bool {
        let elapsed_ms = self.now_ms() - BEGIN_MS;
        let due = self.config.script.iter().enumerate().filter(|(_, scripted)| !scripted.is_done);
        let due = due.map(|(number, scripted)| (number, scripted.clone())).collect::<Vec<_>>();
        for (number, scripted) in due {
            let Some(id) = scripted.instance.clone().or_else(|| self.latest.clone()) else { continue };
            if let Action::TokenCall { activity, said } = &scripted.action {
                let Some(call) = self.waiting_attempt(&id, activity, said) else { continue };
                let reply = self.call_with_token(&id, &call);
                assert!(
                    matches!(reply, CallReply::Answered(_)),
                    "the scripted {:?} failed at {id:?}: {reply:?}",
                    scripted.action
                );
                self.config.script[number].is_done = true;
                return true;
            }
            let Some(request) = scripted.request(number) else { continue };
            let is_due = match &scripted.when {
                When::AfterMs(after_ms) => *after_ms <= elapsed_ms && self.row(&id).is_some(),
                When::Waiting => scripted.awaited().is_some_and(|event| self.waits_for(&id, event)),
            };
            if !is_due {
                continue;
            }
            if matches!(scripted.action, Action::Update { .. }) {
                match &scripted.sent {
                    // Its handler may still be running.
                    Some(sent) if self.node.answer(sent.request).is_some() => {
                        self.config.script[number].is_done = true;
                    }
                    Some(sent) if sent.crashes == self.crashes => {}
                    _ => {
                        let crashes = self.crashes;
                        let id = scripted.sent.as_ref().map_or(id, |sent| sent.id.clone());
                        let request = self.node.request(&id, request);
                        self.config.script[number].sent = Some(SentRequest { id, request, crashes });
                        return true;
                    }
                }
                continue;
            }
            // An event for an instance that has ended is dropped.
            let answer = self.request(&id, || request.clone());
            assert!(
                matches!(answer, Response::Accepted | Response::EndedBefore | Response::TooLate),
                "the scripted {:?} failed at {id:?}: {answer:?}",
                scripted.action
            );
            self.config.script[number].is_done = true;
            return true;
        }
        false
    }

    pub(super) fn next_script_ms(&self) -> Option<u64> {
        let undone = self.config.script.iter().filter(|scripted| !scripted.is_done);
        let after_ms = undone.filter_map(|scripted| match scripted.when {
            When::AfterMs(after_ms) => Some(BEGIN_MS + after_ms),
            When::Waiting => None,
        });
        after_ms.filter(|at_ms| *at_ms > self.now_ms()).min()
    }

    fn waits_for(&self, id: &str, event: &str) -> bool {
        let is_open = |row: &InstanceRow| !row.status.is_final();
        self.row(id).filter(is_open).is_some_and(|row| self.unmet_waits(&row).contains(event))
    }

    /// The events that an instance waits for. Waits are satisfied in order, so a wait is open as long as
    /// there are more waits than events of a name.
    pub(super) fn unmet_waits(&self, row: &InstanceRow) -> BTreeSet<String> {
        let mut unmet: BTreeMap<String, i64> = BTreeMap::new();
        for (_, decision) in self.ledger(row).open() {
            if let Decision::ExternalSubscribed { name } = decision {
                *unmet.entry(name.clone()).or_default() += 1;
            }
        }
        for event in self.history(row, row.execution).flatten() {
            if let EventKind::Job(Job::ExternalEvent { name, .. }) = &event.kind {
                *unmet.entry(name.clone()).or_default() -= 1;
            }
        }
        unmet.into_iter().filter(|(_, count)| *count > 0).map(|(name, _)| name).collect()
    }
}
