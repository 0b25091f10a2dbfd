//! The connections of a store. They are opened on demand up to a limit, and each is used by one call at a time.

use std::sync::{Arc, Mutex, PoisonError};

use perennial_core::store::StoreError;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::connection::Connection;
use crate::options::Target;
use crate::store::MAX_LANES;

pub(crate) struct Pool {
    target: Arc<Target>,
    slots: Semaphore,
    /// Slots that only commits use, so that they do not wait for many reads and sends. There may be none.
    commit_slots: Semaphore,
    /// Used as a stack: the connection used last is reused first, because the server has its plans cached.
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub(crate) fn new(target: Arc<Target>) -> Pool {
        let connections = target.options.connections;
        // A lane has one commit in progress at a time.
        let for_commits = (connections / 2).min(MAX_LANES);
        let slots = Semaphore::new(connections - for_commits);
        Pool { target, slots, commit_slots: Semaphore::new(for_commits), idle: Mutex::default() }
    }

    /// Returns a connection for one call. Waits until one is free.
    pub(crate) async fn get(&self) -> Result<PooledConnection<'_>, StoreError> {
        self.get_in(&self.slots).await
    }

    /// Returns a connection for a commit.
    pub(crate) async fn get_for_commit(&self) -> Result<PooledConnection<'_>, StoreError> {
        let has_own = self.target.options.connections > 1;
        self.get_in(if has_own { &self.commit_slots } else { &self.slots }).await
    }

    async fn get_in<'p>(&'p self, slots: &'p Semaphore) -> Result<PooledConnection<'p>, StoreError> {
        let slot = slots.acquire().await.map_err(|_| StoreError::Closed)?;
        let connection = match self.take() {
            Some(connection) => connection,
            None => Connection::open(&self.target).await?,
        };
        Ok(PooledConnection { pool: self, connection: Some(connection), _slot: slot })
    }

    /// Refuses further calls and closes the idle connections.
    pub(crate) fn close(&self) {
        self.slots.close();
        self.commit_slots.close();
        self.lock().clear();
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.lock();
        // The server may have closed idle connections.
        idle.retain(Connection::is_usable);
        idle.pop()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that returns to the pool when it is dropped, if it is still usable.
pub(crate) struct PooledConnection<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
    _slot: SemaphorePermit<'p>,
}

impl std::ops::Deref for PooledConnection<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("it is given back only when this is dropped")
    }
}

impl std::ops::DerefMut for PooledConnection<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is given back only when this is dropped")
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take().filter(Connection::is_usable)
            && !self.pool.slots.is_closed()
        {
            self.pool.lock().push(connection);
        }
    }
}
