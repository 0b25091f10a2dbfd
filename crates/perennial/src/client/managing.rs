//! Looking at many instances, and doing something about them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use perennial_core::store::{
    Count, Criteria, DeleteOutcome, InstanceRow, Page, PageKey, PageLimit, Pause, Status, StoreStats, TaskRow,
};
use perennial_core::{ClosePolicy, Decision, InstanceKey, Payload, ShardId, Timestamp, Turn, Why};

use super::{Client, InstancePage, InstanceView, Tree};
use crate::error::ClientError;
use crate::filter::Filter;

/// How many instances are looked at together.
const PAGE: usize = 200;
/// How many instances one transaction deletes.
const DELETED_TOGETHER: usize = 50;
/// How many rows that deleted instances left behind one transaction deletes.
const SWEPT_TOGETHER: usize = 2_000;
/// The shortest rest between two sweeps.
const SWEEP_REST: Duration = Duration::from_millis(5);
/// For so long an instance that is to be deleted may take to end, before it is told again.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// What is done to each instance of a list.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Ask it to cancel.
    Cancel {
        /// Why.
        reason: String,
        /// How long it may clean up; the runtime's default if none.
        grace: Option<Duration>,
    },
    /// End it without running its code.
    Terminate {
        /// Why.
        reason: String,
    },
    /// Raise an event at it.
    Raise {
        /// The event.
        event: String,
        /// What goes with it.
        payload: Payload,
    },
    /// Try it again, if it is blocked.
    Retry,
    /// Pause it.
    Pause {
        /// Why, and by whom.
        why: Why,
    },
    /// Let it go on, if it is paused.
    Resume {
        /// Why, and by whom.
        why: Why,
    },
    /// Pause it until its orchestration is resumed. [`Client::pause_orchestration`] does that.
    #[doc(hidden)]
    PauseWithOrchestration {
        /// Why, and by whom.
        why: Why,
    },
    /// Let it go on if it is paused with its orchestration. [`Client::resume_orchestration`] does that.
    #[doc(hidden)]
    ResumeWithOrchestration {
        /// Why, and by whom.
        why: Why,
    },
    /// Delete it, with its children.
    Delete {
        /// Whether it is terminated first, if it runs.
        force: bool,
    },
}

/// How far something over many instances is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many instances were looked at.
    pub seen: u64,
    /// How many it was done to.
    pub done: u64,
    /// How many it did not apply to: they had ended, or had not, or were gone.
    pub skipped: u64,
    /// How many it failed for, and the first reasons.
    pub failed: u64,
    /// The first of them, by id.
    pub failures: Vec<(String, String)>,
}

impl Progress {
    /// How many failures are kept with their reasons.
    const KEPT_FAILURES: usize = 20;

    fn fail(&mut self, id: &str, error: &ClientError) {
        self.failed += 1;
        if self.failures.len() < Progress::KEPT_FAILURES {
            self.failures.push((id.to_owned(), error.to_string()));
        }
    }
}

/// Which finished instances are deleted. Everything that is set has to hold.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Prune {
    filter: Filter,
    older_than: Option<Duration>,
    keep_newest: usize,
    pause: Duration,
}

impl Prune {
    /// All finished instances.
    pub fn all() -> Prune {
        Prune::default()
    }

    /// Only those that ended at least this long ago.
    pub fn older_than(mut self, age: Duration) -> Prune {
        self.older_than = Some(age);
        self
    }

    /// All but this many of the newest.
    pub fn keep_newest(mut self, count: usize) -> Prune {
        self.keep_newest = count;
        self
    }

    /// Only those that a filter shows, of which those that have not ended are left alone. Its order is not looked at: the
    /// newest come first.
    pub fn only(mut self, filter: Filter) -> Prune {
        self.filter = filter;
        self
    }

    /// Rests this long after each transaction, so that other work is not disturbed. Default: not at all.
    pub fn pause(mut self, pause: Duration) -> Prune {
        self.pause = pause;
        self
    }

    /// The filter with what age and ending add to it. None if it asks only for what has not ended.
    fn narrowed(&self, now_ms: u64) -> Result<Option<Criteria>, ClientError> {
        let filter = self.filter.clone().into_criteria()?;
        let asked = |status: &Status| filter.statuses.is_empty() || filter.statuses.contains(status);
        let statuses: Vec<Status> =
            Status::ALL.into_iter().filter(|status| status.is_final()).filter(asked).collect();
        let by_age = self.older_than.map(|age| now_ms.saturating_sub(age.as_millis() as u64));
        let ended_before_ms = filter.ended_before_ms.into_iter().chain(by_age).min();
        let narrowed = Criteria { statuses, ended_before_ms, newest_first: true, ..filter };
        Ok((!narrowed.statuses.is_empty()).then_some(narrowed))
    }
}

impl Client {
    /// A page of instances, in the filter's order.
    pub async fn list(
        &self,
        filter: Filter,
        after: Option<PageKey>,
        limit: usize,
    ) -> Result<InstancePage, ClientError> {
        let Page { rows, next } = self.list_rows(filter, after, limit).await?;
        Ok(InstancePage { rows: rows.into_iter().map(InstanceView::from).collect(), next })
    }

    /// A page of instances with the columns that only the engine needs. For tests.
    #[doc(hidden)]
    pub async fn list_rows(
        &self,
        filter: Filter,
        after: Option<PageKey>,
        limit: usize,
    ) -> Result<Page, ClientError> {
        self.list_by(filter.into_criteria()?, after, limit).await
    }

    async fn list_by(
        &self,
        criteria: Criteria,
        after: Option<PageKey>,
        limit: usize,
    ) -> Result<Page, ClientError> {
        self.call("", |store, reply| store.list(criteria, after, limit, reply)).await
    }

    /// How many instances a filter shows: exact up to 10,000, then "more".
    pub async fn count(&self, filter: Filter) -> Result<Count, ClientError> {
        let criteria = filter.into_criteria()?;
        self.call("", |store, reply| store.count(criteria, Count::EXACT, reply)).await
    }

    /// How much there is of what, and how late.
    pub async fn stats(&self) -> Result<StoreStats, ClientError> {
        self.call("", |store, reply| store.stats(reply)).await
    }

    /// The time by the store's clock, which dates everything in the store.
    pub async fn now(&self) -> Result<Timestamp, ClientError> {
        self.now_ms().await.map(Timestamp::from_millis)
    }

    pub(super) async fn now_ms(&self) -> Result<u64, ClientError> {
        match &self.driver {
            Some(driver) => Ok(driver.now_ms()),
            None => Ok(self.call("", |store, reply| store.directory(reply)).await?.now_ms),
        }
    }

    /// The activities of an instance's current execution that have rows of their own: those that are retried, wait for a
    /// node that can run them, or run elsewhere. The first attempt that the owner itself makes has none.
    pub async fn tasks(&self, id: &str) -> Result<Vec<TaskRow>, ClientError> {
        let row = self.row(id).await?;
        let (shard, key, nothing) = (row.shard, row.key, PageLimit { rows: 1, bytes: 0 });
        let loaded = self.call(id, |store, reply| store.load(shard, key, u64::MAX, nothing, reply)).await?;
        Ok(loaded.map(|loaded| loaded.tasks).unwrap_or_default())
    }

    /// An instance with all that it started as children.
    pub async fn tree(&self, id: &str) -> Result<Tree, ClientError> {
        let row = self.row(id).await?;
        let rows = self.family(row).await?;
        Ok(grow(&rows, 0))
    }

    /// An instance and its children and theirs, each with the place of its parent; parents come first.
    async fn family(&self, root: InstanceRow) -> Result<Vec<(InstanceRow, usize)>, ClientError> {
        let mut seen = BTreeSet::from([root.key]);
        let mut rows = vec![(root, 0)];
        let mut next = 0;
        while next < rows.len() {
            let filter = Filter::new().parent(rows[next].0.key);
            let mut after = None;
            loop {
                let page = self.list_rows(filter.clone(), after, PAGE).await?;
                let children = page.rows.into_iter().filter(|row| seen.insert(row.key));
                rows.extend(children.map(|row| (row, next)).collect::<Vec<_>>());
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            // Children of one turn have the same time; the order in which they were scheduled is told by their link.
            let first = rows.partition_point(|(_, parent)| *parent < next).max(1);
            rows[first..]
                .sort_by_key(|(row, _)| row.parent.as_ref().map(|link| (link.execution, link.event_id)));
            next += 1;
        }
        Ok(rows)
    }

    /// A family without the children that run and were abandoned when their parents ended, and without their children.
    async fn without_abandoned(
        &self,
        family: Vec<(InstanceRow, usize)>,
    ) -> Result<Vec<(InstanceRow, usize)>, ClientError> {
        let mut is_kept = vec![true; family.len()];
        for (place, (row, parent)) in family.iter().enumerate().skip(1) {
            let (parent, is_over) = (&family[*parent].0, is_kept[*parent]);
            let runs = !row.status.is_final() && parent.status.is_final();
            is_kept[place] = is_over && !(runs && self.is_abandoned(parent, row).await?);
        }
        Ok(family
            .into_iter()
            .zip(is_kept)
            .filter(|(_, is_kept)| *is_kept)
            .map(|(member, _)| member)
            .collect())
    }

    /// Whether a parent lets a child go on after its own end.
    async fn is_abandoned(&self, parent: &InstanceRow, child: &InstanceRow) -> Result<bool, ClientError> {
        let Some(link) = &child.parent else { return Ok(false) };
        let history = self.turns(parent, link.execution).await?;
        let mut decisions = history.turns.iter().flat_map(Turn::decisions);
        let scheduled = decisions.find(|(event, _, _)| *event == link.event_id);
        Ok(matches!(
            scheduled,
            Some((_, _, Decision::SubOrchestrationScheduled { close: ClosePolicy::Abandon, .. }))
        ))
    }

    /// Deletes an instance that has ended, with its children; returns how many instances are gone. If it or one of its
    /// children runs, nothing is touched, unless forced: then they are terminated first.
    pub async fn delete(&self, id: &str, force: bool) -> Result<u64, ClientError> {
        let root = self.row(id).await?;
        let family = self.family(root).await?;
        self.delete_family(id, family, force).await
    }

    /// Deletes an instance whose row is damaged, by its key: its id may be one that nobody can name. `false` if there is no
    /// such instance. One that is not damaged is deleted only if it has ended. Its children are left alone.
    pub async fn delete_damaged(&self, key: InstanceKey) -> Result<bool, ClientError> {
        // Its shard follows from its id, which cannot be relied on.
        let places = (0..=u8::MAX).map(|shard| (ShardId(shard), key)).collect();
        let outcomes = self.delete_keys(places).await?;
        if outcomes.contains(&DeleteOutcome::Deleted) {
            return Ok(true);
        }
        match outcomes.contains(&DeleteOutcome::NotEnded) {
            true => Err(ClientError::NotEnded { id: key.to_string(), status: Status::Running }),
            false => Ok(false),
        }
    }

    /// Deletes an instance that has ended, with its children, so that its id is free. Children that were abandoned and
    /// still run have nothing to do with that, and stay.
    pub(super) async fn delete_ended(&self, id: &str) -> Result<u64, ClientError> {
        let root = self.row(id).await?;
        let family = self.family(root).await?;
        let family = self.without_abandoned(family).await?;
        self.delete_family(id, family, false).await
    }

    /// Deletes an instance, the first, and those that belong to it.
    async fn delete_family(
        &self,
        id: &str,
        mut family: Vec<(InstanceRow, usize)>,
        force: bool,
    ) -> Result<u64, ClientError> {
        let key = family[0].0.key;
        // Those that run may start others until they have ended.
        while let Some((row, _)) = family.iter().find(|(row, _)| !row.status.is_final()) {
            if !force {
                return Err(ClientError::NotEnded { id: row.id.clone(), status: row.status });
            }
            for (row, _) in family.iter().filter(|(row, _)| !row.status.is_final()) {
                match self.terminate_bound(&row.id, Some(row.key), "deleted").await {
                    // Nobody may own the store by now; so it is asked again after a while.
                    Ok(()) => drop(
                        tokio::time::timeout(END_PATIENCE, self.wait_bound(&row.id, Some(row.key))).await,
                    ),
                    Err(ClientError::Ended { .. }) => {}
                    // It was deleted meanwhile, or its row is so damaged that nobody finds the instance by it.
                    Err(ClientError::NotFound { .. }) if !row.is_sound() => {
                        self.delete_damaged(row.key).await?;
                    }
                    Err(ClientError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            family = match self.row(id).await {
                Ok(root) if root.key == key => self.family(root).await?,
                // Somebody else has deleted it.
                Ok(_) | Err(ClientError::NotFound { .. }) => return Ok(0),
                Err(error) => return Err(error),
            };
        }
        // Children first, so that what is left after a crash still hangs together.
        let keys: Vec<(ShardId, InstanceKey)> =
            family.iter().rev().map(|(row, _)| (row.shard, row.key)).collect();
        let mut deleted = 0;
        for part in keys.chunks(DELETED_TOGETHER) {
            let outcomes = self.delete_keys(part.to_vec()).await?;
            deleted += outcomes.iter().filter(|outcome| **outcome == DeleteOutcome::Deleted).count() as u64;
            if let Some(place) = outcomes.iter().position(|outcome| *outcome == DeleteOutcome::NotEnded) {
                let row = family.iter().find(|(row, _)| row.key == part[place].1).map(|(row, _)| row);
                let (id, status) =
                    row.map_or((id.to_owned(), Status::Running), |row| (row.id.clone(), row.status));
                return Err(ClientError::NotEnded { id, status });
            }
        }
        Ok(deleted)
    }

    async fn delete_keys(
        &self,
        keys: Vec<(ShardId, InstanceKey)>,
    ) -> Result<Vec<DeleteOutcome>, ClientError> {
        let outcomes = self.call("", |store, reply| store.delete(keys, reply)).await?;
        // Rows of large instances are deleted a few at a time, with rests as long as the work: others have half of the
        // store's time at least.
        loop {
            let began = Instant::now();
            if !self.call("", |store, reply| store.sweep(SWEPT_TOGETHER, None, reply)).await?.more {
                return Ok(outcomes);
            }
            tokio::time::sleep(began.elapsed().max(SWEEP_REST)).await;
        }
    }

    /// Deletes finished instances, a few at a time. Nothing that runs is touched. A child goes when its own turn
    /// comes.
    pub async fn prune(
        &self,
        prune: Prune,
        mut progress: impl FnMut(&Progress),
    ) -> Result<Progress, ClientError> {
        let mut report = Progress::default();
        let Some(criteria) = prune.narrowed(self.now_ms().await?)? else {
            return Ok(report);
        };
        let (mut after, mut kept) = (None, 0);
        loop {
            let page = self.list_by(criteria.clone(), after, PAGE).await?;
            let keep = (prune.keep_newest - kept).min(page.rows.len());
            kept += keep;
            report.seen += page.rows.len() as u64;
            report.skipped += keep as u64;
            let keys: Vec<(ShardId, InstanceKey)> =
                page.rows[keep..].iter().map(|row| (row.shard, row.key)).collect();
            for part in keys.chunks(DELETED_TOGETHER) {
                for outcome in self.delete_keys(part.to_vec()).await? {
                    match outcome {
                        DeleteOutcome::Deleted => report.done += 1,
                        DeleteOutcome::NotEnded | DeleteOutcome::Gone => report.skipped += 1,
                    }
                }
                progress(&report);
                if !prune.pause.is_zero() {
                    tokio::time::sleep(prune.pause).await;
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(report);
            }
        }
    }

    /// Does something to every instance that a filter shows. One that fails stops no other; the report says which.
    pub async fn for_each(
        &self,
        filter: Filter,
        action: Action,
        mut progress: impl FnMut(&Progress),
    ) -> Result<Progress, ClientError> {
        let mut report = Progress::default();
        let mut after = None;
        loop {
            let page = self.list_rows(filter.clone(), after, PAGE).await?;
            for row in &page.rows {
                report.seen += 1;
                match self.act(row, &action).await {
                    Ok(true) => report.done += 1,
                    Ok(false) => report.skipped += 1,
                    Err(error @ ClientError::Stopped { .. }) => return Err(error),
                    Err(error) => report.fail(&row.id, &error),
                }
                progress(&report);
            }
            after = page.next;
            if after.is_none() {
                return Ok(report);
            }
        }
    }

    /// Does something to one instance of a list. Returns whether it applied.
    async fn act(&self, row: &InstanceRow, action: &Action) -> Result<bool, ClientError> {
        // The instance that was listed is meant, not one that has its id by now.
        let key = Some(row.key);
        let done = match action {
            Action::Delete { force } => match self.row(&row.id).await {
                Ok(current) if current.key == row.key => {
                    self.delete_family(&row.id, self.family(current).await?, *force).await.map(drop)
                }
                Ok(_) => return Ok(false),
                Err(error) => Err(error),
            },
            _ if row.status.is_final() => return Ok(false),
            Action::Cancel { reason, grace } => self.cancel_bound(&row.id, key, reason, *grace).await,
            Action::Terminate { reason } => self.terminate_bound(&row.id, key, reason).await,
            Action::Raise { event, payload } => self.raise(&row.id, key, event, payload.clone(), None).await,
            Action::Pause { why } => {
                let pause = Pause { why: why.clone(), orchestration: false };
                self.pause_bound(&row.id, row.key, pause).await
            }
            // One that is paused by itself stays so when its orchestration goes on.
            Action::PauseWithOrchestration { .. } if is_paused(row) => return Ok(false),
            Action::PauseWithOrchestration { why } => {
                let pause = Pause { why: why.clone(), orchestration: true };
                self.pause_bound(&row.id, row.key, pause).await
            }
            Action::Resume { .. } if !is_paused(row) => return Ok(false),
            Action::ResumeWithOrchestration { .. } if !is_held(row) => return Ok(false),
            Action::Resume { why } | Action::ResumeWithOrchestration { why } => {
                self.resume_bound(&row.id, row.key, why.clone()).await
            }
            Action::Retry if row.blocked.as_ref().is_none_or(|blocked| blocked.pause.is_some()) => {
                return Ok(false);
            }
            Action::Retry => self.retry_bound(&row.id, row.key).await,
        };
        match done {
            Ok(()) => Ok(true),
            Err(
                ClientError::NotFound { .. }
                | ClientError::Ended { .. }
                | ClientError::NotBlocked { .. }
                | ClientError::OrchestrationPaused { .. }
                | ClientError::NotEnded { .. },
            ) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether somebody paused it.
fn is_paused(row: &InstanceRow) -> bool {
    row.blocked.as_ref().is_some_and(|blocked| blocked.pause.is_some())
}

/// Whether it is paused with its orchestration.
fn is_held(row: &InstanceRow) -> bool {
    let pause = row.blocked.as_ref().and_then(|blocked| blocked.pause.as_ref());
    pause.is_some_and(|pause| pause.orchestration)
}

fn grow(rows: &[(InstanceRow, usize)], place: usize) -> Tree {
    let children = (place + 1..rows.len()).filter(|child| rows[*child].1 == place);
    Tree {
        instance: InstanceView::from(rows[place].0.clone()),
        children: children.map(|child| grow(rows, child)).collect(),
    }
}
