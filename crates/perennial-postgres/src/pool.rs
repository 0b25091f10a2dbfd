//! The connections of a store. They are opened on demand up to a limit, and each is used by one call at a time.

use std::sync::{Arc, Mutex, PoisonError};

use perennial_core::store::StoreError;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::connection::Connection;
use crate::options::Target;

pub(crate) struct Pool {
    target: Arc<Target>,
    slots: Semaphore,
    /// Used as a stack: the connection used last is reused first, because the server has its plans cached.
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub(crate) fn new(target: Arc<Target>) -> Pool {
        let slots = Semaphore::new(target.options.connections);
        Pool { target, slots, idle: Mutex::default() }
    }

    /// Returns a connection for one call. Waits until one is free.
    pub(crate) async fn get(&self) -> Result<PooledConnection<'_>, StoreError> {
        let slot = self.slots.acquire().await.map_err(|_| StoreError::Closed)?;
        let connection = match self.take() {
            Some(connection) => connection,
            None => Connection::open(&self.target).await?,
        };
        Ok(PooledConnection { pool: self, connection: Some(connection), _slot: slot })
    }

    /// Refuses further calls and closes the idle connections.
    pub(crate) fn close(&self) {
        self.slots.close();
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
