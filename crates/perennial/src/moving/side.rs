//! One of the two stores of a move: opened as an owner, under a maintenance session that is renewed until the end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perennial_core::store::{
    Criteria, Directory, Imported, MoveSide, MovedKey, MovedRow, MovedTable, NewSession, NodeInfo, Reply,
    SessionId, SessionRole, SessionRow, Store, StoreError, shown_url,
};
use perennial_core::{InstanceKey, SHARDS, log};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{BATCH, of_start, of_store, refused};
use crate::error::MoveError;
use crate::store_url::open_moved;

/// How long a killed move keeps others out.
const LEASE: Duration = Duration::from_secs(2);
const RENEWAL: Duration = Duration::from_millis(500);
/// How long to wait for the session of a killed move to expire.
const PATIENCE: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Side {
    store: Arc<dyn Store>,
    session: SessionId,
    renewals: JoinHandle<()>,
    /// The URL as it may be shown.
    pub(super) shown: String,
}

impl Side {
    /// Opens a store that nobody uses. Only a target is created.
    pub(super) async fn open(url: &str, side: MoveSide) -> Result<Side, MoveError> {
        let shown = shown_url(url);
        let store = open_moved(url, side == MoveSide::Target).map_err(|error| of_start(&shown, error))?;
        let session = SessionId(uuid::Uuid::new_v4().as_u128());
        let renewals = tokio::spawn(renew_often(Arc::clone(&store), session));
        let side = Side { store, session, renewals, shown };
        match side.begin().await {
            Ok(()) => Ok(side),
            Err(error) => {
                // The reason why it cannot be used counts more than one why it cannot be closed.
                let _ = side.close().await;
                Err(error)
            }
        }
    }

    async fn begin(&self) -> Result<(), MoveError> {
        self.check_unused().await?;
        let (id, name) = (self.session, "perennial move".to_owned());
        let info = NodeInfo { name, process: std::process::id(), ..NodeInfo::default() }.encode();
        let lease_ms = LEASE.as_millis() as u64;
        let new = NewSession { id, role: SessionRole::Maintenance, node: id, lease_ms, info };
        self.call(|store, reply| store.open_session(new, reply)).await?;
        let patience = Instant::now() + PATIENCE;
        loop {
            // Ends sessions that have expired: their nodes cannot come back.
            self.call(|store, reply| store.claim_shards(id, SHARDS, reply)).await?;
            let others = self.check_unused().await?;
            if others.is_empty() {
                return Ok(());
            }
            if Instant::now() > patience {
                let other = describe(&others[0]);
                return Err(refused(format!(
                    "{other} does maintenance on {}; wait until it has finished",
                    self.shown
                )));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Refuses a store with live nodes. Returns other maintenance sessions.
    pub(super) async fn check_unused(&self) -> Result<Vec<SessionRow>, MoveError> {
        let Directory { now_ms, sessions } = self.call(|store, reply| store.directory(reply)).await?;
        let live = sessions.into_iter().filter(|row| row.expires_ms >= now_ms && row.id != self.session);
        let (maintenance, nodes): (Vec<_>, Vec<_>) =
            live.partition(|row| row.role == SessionRole::Maintenance);
        match nodes.first() {
            None => Ok(maintenance),
            Some(node) => {
                let node = describe(node);
                Err(refused(format!(
                    "{node} uses {}; stop every process that uses it, then repeat the move (one that was killed counts as \
                     alive until its lease has expired)",
                    self.shown
                )))
            }
        }
    }

    pub(super) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Store, Reply<T>),
    ) -> Result<T, MoveError> {
        answer(&*self.store, call).await.map_err(|error| of_store(&self.shown, error))
    }

    pub(super) async fn page(
        &self,
        table: MovedTable,
        after: Option<MovedKey>,
    ) -> Result<Vec<MovedRow>, MoveError> {
        self.call(|store, reply| store.export_rows(table, after, BATCH, reply)).await
    }

    pub(super) async fn import(&self, rows: Vec<MovedRow>) -> Result<Imported, MoveError> {
        self.call(|store, reply| store.import_rows(self.session, rows, reply)).await
    }

    /// The id of the instance with a key.
    pub(super) async fn instance(&self, key: InstanceKey) -> Result<Option<String>, MoveError> {
        let before = u128::from_be_bytes(*key.as_bytes()).saturating_sub(1);
        let before = InstanceKey::from_bytes(before.to_be_bytes());
        let page = self.call(|store, reply| store.list(Criteria::default(), Some(before), 1, reply)).await?;
        Ok(page.rows.into_iter().find(|row| row.key == key).map(|row| row.id))
    }

    pub(super) async fn setting(&self, name: &str) -> Result<Option<Arc<[u8]>>, MoveError> {
        self.call(|store, reply| store.read_setting(name, reply)).await
    }

    pub(super) async fn write_setting(
        &self,
        name: &str,
        read: Option<Arc<[u8]>>,
        value: Option<Arc<[u8]>>,
    ) -> Result<(), MoveError> {
        match self.call(|store, reply| store.write_setting(name, read, value, reply)).await? {
            true => Ok(()),
            false => Err(refused(format!(
                "another `perennial move` changed the mark of {}; wait until it has finished",
                self.shown
            ))),
        }
    }

    /// Fails if the session was lost.
    pub(super) async fn renew(&self) -> Result<(), MoveError> {
        self.call(|store, reply| store.renew_session(self.session, None, reply)).await.map(drop)
    }

    pub(super) async fn close(self) -> Result<(), MoveError> {
        self.renewals.abort();
        let ended = self.call(|store, reply| store.end_session(self.session, reply)).await;
        let closed = self.call(|store, reply| store.close(reply)).await;
        ended.and(closed)
    }
}

async fn answer<T: Send + 'static>(
    store: &dyn Store,
    call: impl FnOnce(&dyn Store, Reply<T>),
) -> Result<T, StoreError> {
    let (sender, receiver) = oneshot::channel();
    // The caller may have dropped its future.
    call(store, Box::new(move |answer| drop(sender.send(answer))));
    receiver.await.unwrap_or(Err(StoreError::Closed))
}

/// A renewal that fails is noticed by the next write, and at the end.
async fn renew_often(store: Arc<dyn Store>, session: SessionId) {
    loop {
        tokio::time::sleep(RENEWAL).await;
        if let Err(error) = answer(&*store, |store, reply| store.renew_session(session, None, reply)).await {
            tracing::debug!(target: log::STORE, %error, "session of a move was not renewed");
        }
    }
}

fn describe(session: &SessionRow) -> String {
    let NodeInfo { name, host, process, .. } = NodeInfo::decode(&session.info);
    let at = if host.is_empty() { String::new() } else { format!(" on {host}") };
    match name.is_empty() {
        true => "another process".to_owned(),
        false => format!("{name:?} (process {process}{at})"),
    }
}
