//! What the node reads by itself: what a new owner has to look at, the inbox, requests, and what will be due.

use std::sync::{Arc, Mutex};

use perennial_core::store::{
    AskNumber, AskRow, DueInstance, Filter, InboxNumber, InboxRow, InstanceRow, Page, PageKey, StoreError,
};
use perennial_core::{InstanceKey, ShardId};

use super::node::{Node, lock};

/// How many rows a page of owed, due or inbox rows has.
const PAGE: usize = 1_000;

/// Whether something is being read from its beginning, and whether it has to be read again.
#[derive(Default)]
pub(super) struct Pass {
    running: bool,
    again: bool,
}

impl Pass {
    /// Whether a pass is to begin now; if one is under way, another follows it.
    fn begin(pass: &Mutex<Pass>) -> bool {
        let mut pass = lock(pass);
        pass.again = pass.running;
        !std::mem::replace(&mut pass.running, true)
    }

    /// Whether another pass is to follow the one that ends.
    fn end(pass: &Mutex<Pass>) -> bool {
        let mut pass = lock(pass);
        pass.running = false;
        std::mem::take(&mut pass.again)
    }
}

impl Node {
    /// Looks at everything that a new owner has to look at: what is owed, what is blocked, what is in the inbox.
    pub(super) fn take_over(self: &Arc<Node>) {
        self.read_owed(None);
        self.read_blocked(None);
        self.read_inbox();
        self.read_asks();
        self.take_tasks();
    }

    fn read_owed(self: &Arc<Node>, after: Option<InstanceKey>) {
        let node = Arc::clone(self);
        let reply = move |owed: Result<Vec<(InstanceKey, ShardId)>, StoreError>| match owed {
            Ok(owed) => {
                for (key, shard) in &owed {
                    node.with_shard(*shard, |shard, now_ms| shard.handle_owed(now_ms, *key));
                }
                if owed.len() == PAGE {
                    node.read_owed(owed.last().map(|(key, _)| *key));
                }
            }
            Err(error) => node.reading_failed(&error, move |node| node.read_owed(after)),
        };
        self.store.read_owed(self.session(), after, PAGE, Box::new(reply));
    }

    fn read_blocked(self: &Arc<Node>, after: Option<PageKey>) {
        let node = Arc::clone(self);
        let filter = Filter { blocked: Some(true), ..Filter::default() };
        let reply = move |page: Result<Page, StoreError>| match page {
            Ok(page) => {
                // What takes the process down is tried again when somebody asks for it.
                let is_safe =
                    |row: &&InstanceRow| row.blocked.as_ref().is_none_or(|it| it.code != "PER-0302");
                for row in page.rows.iter().filter(|row| !row.status.is_final()).filter(is_safe) {
                    node.with_shard(row.shard, |shard, now_ms| shard.handle_owed(now_ms, row.key));
                }
                if page.next.is_some() {
                    node.read_blocked(page.next);
                }
            }
            Err(error) => node.reading_failed(&error, move |node| node.read_blocked(after)),
        };
        self.store.list(filter, after, PAGE, Box::new(reply));
    }

    /// Reads the inbox from its beginning, once more if something changed meanwhile.
    pub(super) fn read_inbox(self: &Arc<Node>) {
        if !self.is_caretaker && Pass::begin(&self.inbox_pass) {
            self.read_inbox_from(0);
        }
    }

    fn read_inbox_from(self: &Arc<Node>, from: InboxNumber) {
        let node = Arc::clone(self);
        let reply = move |rows: Result<Vec<InboxRow>, StoreError>| match rows {
            Ok(rows) => {
                let next = (rows.len() == PAGE).then(|| rows.last().map(|row| row.number + 1)).flatten();
                for row in rows {
                    node.with_shard(row.shard, |shard, now_ms| shard.handle_inbox(now_ms, vec![row]));
                }
                match next {
                    Some(next) => node.read_inbox_from(next),
                    None => node.end_inbox_pass(),
                }
            }
            Err(error) => node.reading_failed(&error, move |node| node.read_inbox_from(from)),
        };
        self.store.read_inbox(self.session(), from, PAGE, Box::new(reply));
    }

    fn end_inbox_pass(self: &Arc<Node>) {
        if Pass::end(&self.inbox_pass) {
            self.read_inbox();
        }
    }

    /// Reads what other processes ask, once more if something changed meanwhile.
    pub(super) fn read_asks(self: &Arc<Node>) {
        if Pass::begin(&self.ask_pass) {
            self.read_asks_from(0);
        }
    }

    fn read_asks_from(self: &Arc<Node>, from: AskNumber) {
        let node = Arc::clone(self);
        let reply = move |rows: Result<Vec<AskRow>, StoreError>| match rows {
            Ok(rows) => {
                let next = (rows.len() == PAGE).then(|| rows.last().map(|row| row.number + 1)).flatten();
                for row in rows {
                    node.with_shard(row.shard, |shard, now_ms| shard.handle_asks(now_ms, vec![row]));
                }
                match next {
                    Some(next) => node.read_asks_from(next),
                    None if Pass::end(&node.ask_pass) => node.read_asks(),
                    None => {}
                }
            }
            Err(error) => node.reading_failed(&error, move |node| node.read_asks_from(from)),
        };
        self.store.read_asks(self.session(), from, PAGE, Box::new(reply));
    }

    /// Removes requests that nobody answered and answers that nobody read in time.
    fn sweep_asks(self: &Arc<Node>) {
        let node = Arc::clone(self);
        self.store.sweep_asks(Box::new(move |swept| {
            if let Err(error) = swept {
                // The next sweep comes by itself.
                node.reading_failed(&error, |_| ());
            }
        }));
    }

    /// Reads what will be due soon, and lets shards put idle executions away.
    pub(super) fn read_ahead(self: &Arc<Node>) {
        let before_ms = self.now_ms() + self.options.shard.lookahead_ms;
        self.read_due(before_ms, None);
        self.sweep_asks();
        for shard in ShardId::all() {
            if lock(&self.shards[usize::from(shard.0)]).slots() > 0 {
                self.bring_time(shard);
            }
        }
    }

    /// Reads what will be due soon: something was added to it.
    pub(crate) fn look_ahead(self: &Arc<Node>) {
        self.read_due(self.now_ms() + self.options.shard.lookahead_ms, None);
    }

    /// Reads what was made due from outside.
    pub(super) fn read_due_now(self: &Arc<Node>) {
        self.read_due(self.now_ms() + 1, None);
    }

    fn read_due(self: &Arc<Node>, before_ms: u64, after: Option<(u64, InstanceKey)>) {
        let node = Arc::clone(self);
        let reply = move |due: Result<Vec<DueInstance>, StoreError>| match due {
            Ok(due) => {
                for instance in &due {
                    node.with_shard(instance.shard, |shard, _| {
                        shard.handle_due(instance.key, instance.wake_at_ms)
                    });
                }
                if due.len() == PAGE {
                    let last = due.last().map(|instance| (instance.wake_at_ms, instance.key));
                    node.read_due(before_ms, last);
                }
            }
            Err(error) => node.reading_failed(&error, move |node| node.read_due(before_ms, after)),
        };
        self.store.read_due(self.session(), before_ms, after, PAGE, Box::new(reply));
    }

    pub(super) fn reading_failed(
        self: &Arc<Node>,
        error: &StoreError,
        again: impl FnOnce(&Arc<Node>) + Send + 'static,
    ) {
        match error {
            StoreError::Closed => {}
            error if error.is_retryable() => self.later(again),
            error => self.fail(error.to_string()),
        }
    }
}
