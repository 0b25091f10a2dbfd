//! The connections of a store: made when they are needed, used by one call at a time, up to a number.

use std::sync::{Arc, Mutex, PoisonError};

use perennial_core::store::StoreError;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::connection::Connection;
use crate::options::Target;

pub(crate) struct Pool {
    target: Arc<Target>,
    slots: Semaphore,
    /// The one that was used last is used next, since the server has its plans at hand.
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub(crate) fn new(target: Arc<Target>) -> Pool {
        let slots = Semaphore::new(target.options.connections);
        Pool { target, slots, idle: Mutex::default() }
    }

    /// A connection for one call. Waits until one is free.
    pub(crate) async fn get(&self) -> Result<Lent<'_>, StoreError> {
        let slot = self.slots.acquire().await.map_err(|_| StoreError::Closed)?;
        let connection = match self.take() {
            Some(connection) => connection,
            None => Connection::open(&self.target).await?,
        };
        Ok(Lent { pool: self, connection: Some(connection), _slot: slot })
    }

    /// Lends no more, and closes what is not in use.
    pub(crate) fn close(&self) {
        self.slots.close();
        self.lock().clear();
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.lock();
        // Those that the server has closed meanwhile are no use.
        idle.retain(Connection::is_usable);
        idle.pop()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that goes back when it is dropped, if it can be used again.
pub(crate) struct Lent<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
    _slot: SemaphorePermit<'p>,
}

impl std::ops::Deref for Lent<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("it is given back only when this is dropped")
    }
}

impl std::ops::DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is given back only when this is dropped")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take().filter(Connection::is_usable)
            && !self.pool.slots.is_closed()
        {
            self.pool.lock().push(connection);
        }
    }
}
