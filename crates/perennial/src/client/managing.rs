//! Lists, counts, trees, deletion and pruning.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use perennial_core::store::{
    Count, Criteria, DeleteOutcome, EndPlace, InstanceRow, Page, PageKey, PageLimit, Status, StoreStats,
    TaskRow,
};
use perennial_core::{ClosePolicy, Decision, InstanceKey, ShardId, Timestamp, Turn};

use super::{Client, EndedPage, InstancePage, InstanceView, Progress, Tree};
use crate::error::ClientError;
use crate::filter::Filter;

/// How many instances are read at a time.
const PAGE: usize = 200;
/// How many instances one transaction deletes.
const DELETED_TOGETHER: usize = 50;
/// How many rows left behind by deleted instances one transaction deletes.
const SWEPT_TOGETHER: usize = 2_000;
/// The shortest pause between two sweeps.
const SWEEP_REST: Duration = Duration::from_millis(5);
/// How long to wait for an instance that is to be deleted to end, before it is terminated again.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Selects finished instances for deletion. An instance has to meet all conditions.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Prune {
    filter: Filter,
    older_than: Option<Duration>,
    keep_newest: usize,
    pause: Duration,
}

impl Prune {
    /// Selects all finished instances.
    pub fn all() -> Prune {
        Prune::default()
    }

    /// Selects instances that ended at least this long ago.
    pub fn older_than(mut self, age: Duration) -> Prune {
        self.older_than = Some(age);
        self
    }

    /// Keeps this many of the newest.
    pub fn keep_newest(mut self, count: usize) -> Prune {
        self.keep_newest = count;
        self
    }

    /// Selects instances that match a filter. Unfinished instances are never selected. The order of the
    /// filter is ignored: the newest come first.
    pub fn only(mut self, filter: Filter) -> Prune {
        self.filter = filter;
        self
    }

    /// Pauses this long after each transaction, so that other work is not disturbed. Default: no pause.
    pub fn pause(mut self, pause: Duration) -> Prune {
        self.pause = pause;
        self
    }

    /// The criteria with age and status added. `None` if the filter selects only unfinished instances.
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
    /// Returns a page of instances, in the filter's order.
    pub async fn list(
        &self,
        filter: Filter,
        after: Option<PageKey>,
        limit: usize,
    ) -> Result<InstancePage, ClientError> {
        let Page { rows, next } = self.list_rows(filter, after, limit).await?;
        Ok(InstancePage { rows: rows.into_iter().map(InstanceView::from).collect(), next })
    }

    /// Returns a page of the instances that have ended and match a filter, in the order of their end: the last ended
    /// first, whatever order the filter has.
    ///
    /// ```
    /// use perennial::Filter;
    /// use perennial::prelude::*;
    ///
    /// # #[orchestration]
    /// # async fn order(_: OrchestrationContext) -> Result<(), String> { Ok(()) }
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(order).start().await?;
    /// let client = runtime.client();
    /// client.start(order, "a", ()).await?.result().await?;
    /// client.start(order, "b", ()).await?.result().await?;
    /// let first = client.list_ended(Filter::new(), None, 1).await?;
    /// let rest = client.list_ended(Filter::new(), first.next, 10).await?;
    /// assert_eq!((&*first.rows[0].id, &*rest.rows[0].id), ("b", "a"));
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn list_ended(
        &self,
        filter: Filter,
        after: Option<EndPlace>,
        limit: usize,
    ) -> Result<EndedPage, ClientError> {
        let mut criteria = filter.into_criteria()?;
        criteria.ended_from_ms.get_or_insert(0);
        criteria.by_end = Some(after.unwrap_or_else(EndPlace::first));
        let Page { rows, next } = self.list_by(criteria, None, limit).await?;
        let next = next.and_then(|_| rows.last().and_then(EndPlace::of));
        Ok(EndedPage { rows: rows.into_iter().map(InstanceView::from).collect(), next })
    }

    /// A page of instances with the engine's internal columns. For tests.
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

    /// Counts the instances that match a filter: exactly up to 10,000, then "more".
    pub async fn count(&self, filter: Filter) -> Result<Count, ClientError> {
        let criteria = filter.into_criteria()?;
        self.call("", |store, reply| store.count(criteria, Count::EXACT, reply)).await
    }

    /// Row counts and scheduling lag.
    pub async fn stats(&self) -> Result<StoreStats, ClientError> {
        self.call("", |store, reply| store.stats(reply)).await
    }

    /// The time of the store's clock, which is used for all stored times.
    pub async fn now(&self) -> Result<Timestamp, ClientError> {
        self.now_ms().await.map(Timestamp::from_millis)
    }

    pub(super) async fn now_ms(&self) -> Result<u64, ClientError> {
        match &self.driver {
            Some(driver) => Ok(driver.now_ms()),
            None => Ok(self.call("", |store, reply| store.directory(reply)).await?.now_ms),
        }
    }

    /// The activities of an instance's current execution that have their own rows: those that are retried,
    /// wait for a node that can run them, or run on another node. The first attempt on the owner has none.
    pub async fn tasks(&self, id: &str) -> Result<Vec<TaskRow>, ClientError> {
        let row = self.row(id).await?;
        let (shard, key, nothing) = (row.shard, row.key, PageLimit { rows: 1, bytes: 0 });
        let loaded = self.call(id, |store, reply| store.load(shard, key, u64::MAX, nothing, reply)).await?;
        Ok(loaded.map(|loaded| loaded.tasks).unwrap_or_default())
    }

    /// Returns an instance with all its descendants.
    pub async fn tree(&self, id: &str) -> Result<Tree, ClientError> {
        let row = self.row(id).await?;
        let rows = self.family(row).await?;
        Ok(grow(&rows, 0))
    }

    /// An instance and its descendants, each with the index of its parent; parents come first.
    pub(super) async fn family(&self, root: InstanceRow) -> Result<Vec<(InstanceRow, usize)>, ClientError> {
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
            // Children of one turn have the same time; their link contains the order in which they were
            // scheduled.
            let first = rows.partition_point(|(_, parent)| *parent < next).max(1);
            rows[first..]
                .sort_by_key(|(row, _)| row.parent.as_ref().map(|link| (link.execution, link.event_id)));
            next += 1;
        }
        Ok(rows)
    }

    /// A family without running children that were abandoned by parents that ended, and without their
    /// descendants.
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

    /// Whether a parent lets a child continue after its own end.
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

    /// Deletes an instance that has ended, with its children. Returns the number of deleted instances. If it
    /// or one of its children is running, nothing is changed, unless `force` is set: then they are terminated
    /// first.
    pub async fn delete(&self, id: &str, force: bool) -> Result<u64, ClientError> {
        let root = self.row(id).await?;
        let client = self.unbound();
        let family = client.family(root).await?;
        client.delete_family(id, family, force).await
    }

    /// Deletes an instance whose row is damaged, by its key, since its id may be unreadable. Returns `false`
    /// if there is no such instance. An undamaged instance is deleted only if it has ended. Children are not
    /// deleted.
    pub async fn delete_damaged(&self, key: InstanceKey) -> Result<bool, ClientError> {
        // The shard is derived from the id, which cannot be relied on.
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

    /// Deletes an instance that has ended, with its children, so that its id can be used again. Abandoned
    /// children that are still running are kept.
    pub(super) async fn delete_ended(&self, id: &str) -> Result<u64, ClientError> {
        let root = self.row(id).await?;
        let family = self.family(root).await?;
        let family = self.without_abandoned(family).await?;
        self.delete_family(id, family, false).await
    }

    /// Deletes an instance (the first) and its descendants.
    pub(super) async fn delete_family(
        &self,
        id: &str,
        mut family: Vec<(InstanceRow, usize)>,
        force: bool,
    ) -> Result<u64, ClientError> {
        let key = family[0].0.key;
        // Running instances may start others until they have ended.
        while let Some((row, _)) = family.iter().find(|(row, _)| !row.status.is_final()) {
            if !force {
                return Err(ClientError::NotEnded { id: row.id.clone(), status: row.status });
            }
            for (row, _) in family.iter().filter(|(row, _)| !row.status.is_final()) {
                match self.terminate_bound(&row.id, Some(row.key), "deleted").await {
                    // The store may have lost its owner by now, so the request is repeated after a while.
                    Ok(()) => drop(
                        tokio::time::timeout(END_PATIENCE, self.wait_bound(&row.id, Some(row.key))).await,
                    ),
                    Err(ClientError::Ended { .. }) => {}
                    // Deleted in the meantime, or its row is so damaged that the instance cannot be found by
                    // it.
                    Err(ClientError::NotFound { .. }) if !row.is_sound() => {
                        self.delete_damaged(row.key).await?;
                    }
                    Err(ClientError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            family = match self.row(id).await {
                Ok(root) if root.key == key => self.family(root).await?,
                // Another caller has deleted it.
                Ok(_) | Err(ClientError::NotFound { .. }) => return Ok(0),
                Err(error) => return Err(error),
            };
        }
        // Children first, so that the rest is still consistent after a crash.
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
        // Rows of large instances are deleted in small batches, with pauses as long as the work, so that
        // others get at least half of the store's time.
        loop {
            let began = Instant::now();
            if !self.call("", |store, reply| store.sweep(SWEPT_TOGETHER, None, reply)).await?.more {
                return Ok(outcomes);
            }
            tokio::time::sleep(began.elapsed().max(SWEEP_REST)).await;
        }
    }

    /// Deletes finished instances in small batches. Running instances are not touched. Children are selected
    /// like other instances.
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
}

fn grow(rows: &[(InstanceRow, usize)], place: usize) -> Tree {
    let children = (place + 1..rows.len()).filter(|child| rows[*child].1 == place);
    Tree {
        instance: InstanceView::from(rows[place].0.clone()),
        children: children.map(|child| grow(rows, child)).collect(),
    }
}
