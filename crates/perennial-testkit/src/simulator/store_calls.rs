//! Calls to the store: they take their time, and sometimes come to nothing.

use std::sync::mpsc;

use perennial_core::store::{
    Filter, InboxNumber, InboxRow, MemoryStore, Reply, SessionId, Store, StoreError,
};
use perennial_core::{InstanceKey, ShardId};

use super::Simulation;

/// The store in memory answers at once.
pub(super) fn ask<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| sender.send(answer).expect("the asker waits")));
    receiver.recv().expect("the store in memory answers at once")
}

/// How many rows a page has: few, so that there are several.
pub(super) const PAGE: usize = 3;

impl Simulation {
    pub(super) fn call_delay_ms(&mut self) -> u64 {
        let slow = self.faults(|faults| faults.slow);
        if self.chance.percent(slow) {
            self.count("slow call");
            return self.chance.between(self.plan.call_ms, 2 * self.plan.lease_ms);
        }
        self.chance.between(0, self.plan.call_ms)
    }

    /// How likely something goes wrong now.
    pub(super) fn faults(&self, percent: impl FnOnce(&super::plan::Faults) -> u64) -> u64 {
        if self.is_healed { 0 } else { percent(&self.plan.faults) }
    }

    /// When a call that a node makes now reaches the store: calls of a session keep their order.
    pub(super) fn effect_delay_ms(&mut self, node: usize) -> u64 {
        let now_ms = self.now_ms();
        let at_ms = (now_ms + self.call_delay_ms()).max(self.nodes[node].last_effect_ms);
        self.nodes[node].last_effect_ms = at_ms;
        at_ms - now_ms
    }

    /// A node calls the store and goes on when it is answered. The call reaches the store even if the node dies.
    pub(super) fn call<T: 'static>(
        &mut self,
        node: usize,
        what: &'static str,
        effect: impl FnOnce(&mut Simulation) -> Result<T, StoreError> + 'static,
        reply: impl FnOnce(&mut Simulation, Result<T, StoreError>) + 'static,
    ) {
        let delay_ms = self.effect_delay_ms(node);
        let incarnation = self.nodes[node].incarnation;
        self.later(delay_ms, format!("n{node} {what} reaches the store"), move |this| {
            let unavailable = this.faults(|faults| faults.unavailable);
            let answer = if this.chance.percent(unavailable) {
                this.count("call refused");
                Err(StoreError::Unavailable("simulated".to_owned()))
            } else {
                effect(this)
            };
            if this.nodes[node].incarnation != incarnation {
                return;
            }
            let delay_ms = this.call_delay_ms();
            let label = format!("n{node} {what} is answered{}", if answer.is_err() { ": error" } else { "" });
            this.later_on(node, delay_ms, label, move |this| reply(this, answer));
        });
    }

    /// Tries something again after a pause.
    pub(super) fn again(
        &mut self,
        node: usize,
        what: &'static str,
        run: impl FnOnce(&mut Simulation) + 'static,
    ) {
        let pause_ms = self.chance.between(10, 300);
        self.later_on(node, pause_ms, format!("n{node} tries again to {what}"), run);
    }

    /// A node reads with its session, unless it has none.
    pub(super) fn read<T: Send + 'static>(
        &mut self,
        node: usize,
        what: &'static str,
        read: impl FnOnce(&MemoryStore, SessionId, Reply<T>) + 'static,
        reply: impl FnOnce(&mut Simulation, Result<T, StoreError>) + 'static,
    ) -> bool {
        let Some(session) = self.nodes[node].session else {
            return false;
        };
        let effect = move |this: &mut Simulation| ask(|answer| read(&this.store, session, answer));
        self.call(node, what, effect, move |this, answer| {
            // What an earlier session read may have been done since, by a memory that is gone.
            if this.nodes[node].session == Some(session) {
                reply(this, answer);
            } else {
                this.count("page of an earlier session");
                reply(this, Err(StoreError::SessionGone));
            }
        });
        true
    }

    pub(super) fn read_owed(&mut self, node: usize, after: Option<InstanceKey>) {
        let read = move |store: &MemoryStore, session, reply: Reply<Vec<(InstanceKey, ShardId)>>| {
            store.read_owed(session, after, PAGE, reply);
        };
        self.read(node, "read_owed", read, move |this, owed| match owed {
            Err(_) => this.again(node, "read what is owed", move |this| this.read_owed(node, after)),
            Ok(owed) => {
                for (key, shard) in &owed {
                    this.with_shard(node, *shard, |shard, now_ms| shard.handle_owed(now_ms, *key));
                }
                if owed.len() == PAGE {
                    this.read_owed(node, owed.last().map(|(key, _)| *key));
                }
            }
        });
    }

    pub(super) fn read_blocked(&mut self, node: usize) {
        let filter = Filter { blocked: Some(true), ..Filter::default() };
        let read = move |store: &MemoryStore, _, reply| store.list(filter, None, usize::MAX - 1, reply);
        self.read(node, "read_blocked", read, move |this, page| match page {
            Err(_) => this.again(node, "read what is blocked", move |this| this.read_blocked(node)),
            Ok(page) => {
                for row in page.rows.iter().filter(|row| !row.status.is_final()) {
                    this.with_shard(node, row.shard, |shard, now_ms| shard.handle_owed(now_ms, row.key));
                }
            }
        });
    }

    pub(super) fn read_due(&mut self, node: usize) {
        let before_ms = self.now_ms() + self.plan.shard.lookahead_ms;
        self.read_due_after(node, before_ms, None);
    }

    fn read_due_after(&mut self, node: usize, before_ms: u64, after: Option<(u64, InstanceKey)>) {
        let read = move |store: &MemoryStore, session, reply: Reply<_>| {
            store.read_due(session, before_ms, after, PAGE, reply);
        };
        // If this one fails, the next look around reads again.
        self.read(node, "read_due", read, move |this, due| {
            let due = due.unwrap_or_default();
            for instance in &due {
                this.with_shard(node, instance.shard, |shard, _| {
                    shard.handle_due(instance.key, instance.wake_at_ms);
                });
            }
            if due.len() == PAGE {
                let last = due.last().map(|instance| (instance.wake_at_ms, instance.key));
                this.read_due_after(node, before_ms, last);
            }
        });
    }

    /// Reads the inbox from its beginning, once more if something changed meanwhile.
    pub(super) fn read_inbox(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        if it.inbox_running {
            it.inbox_again = true;
        } else {
            it.inbox_running = true;
            self.read_inbox_from(node, 0);
        }
    }

    fn read_inbox_from(&mut self, node: usize, from: InboxNumber) {
        let read = move |store: &MemoryStore, session, reply: Reply<_>| {
            store.read_inbox(session, from, PAGE, reply);
        };
        let asked = self.read(node, "read_inbox", read, move |this, rows| match rows {
            Err(_) => this.again(node, "read the inbox", move |this| this.read_inbox_from(node, from)),
            Ok(rows) => {
                let next = (rows.len() == PAGE).then(|| rows.last().map(|row| row.number + 1)).flatten();
                this.bring_inbox(node, rows.clone());
                this.bring_again(node, rows);
                match next {
                    Some(next) => this.read_inbox_from(node, next),
                    None => this.end_inbox_pass(node),
                }
            }
        });
        if !asked {
            self.nodes[node].inbox_running = false;
        }
    }

    fn bring_inbox(&mut self, node: usize, rows: Vec<InboxRow>) {
        for row in rows {
            self.with_shard(node, row.shard, |shard, now_ms| shard.handle_inbox(now_ms, vec![row]));
        }
    }

    /// A page that was read before comes late.
    fn bring_again(&mut self, node: usize, rows: Vec<InboxRow>) {
        let stale_page = self.faults(|faults| faults.stale_page);
        if rows.is_empty() || !self.chance.percent(stale_page) {
            return;
        }
        let (delay_ms, session) = (self.chance.between(1, 2_000), self.nodes[node].session);
        self.later_on(node, delay_ms, format!("n{node} gets an old page of the inbox"), move |this| {
            if this.nodes[node].session == session {
                this.count("stale page of the inbox");
                this.bring_inbox(node, rows);
            }
        });
    }

    fn end_inbox_pass(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        it.inbox_running = false;
        if std::mem::take(&mut it.inbox_again) {
            self.read_inbox(node);
        }
    }
}
