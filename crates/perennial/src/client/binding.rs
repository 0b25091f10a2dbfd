//! Clients that reach one instance only.

use perennial_core::InstanceKey;

use super::Client;
use crate::error::ClientError;

impl Client {
    /// Returns a client whose requests reach only the instance with this key. If the id of a request belongs to another
    /// instance by then, nothing happens, and the result is [`ClientError::AnotherInstance`].
    ///
    /// The owner of the instance checks the key together with the change. Use it for decisions that someone made by
    /// looking at an instance: it may have been deleted since, and its id used again.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// # const PAID: ExternalEvent<()> = ExternalEvent::named("paid");
    /// # #[orchestration]
    /// # async fn order(ctx: OrchestrationContext) -> Result<(), String> { Ok(ctx.schedule_wait(PAID).await) }
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(order).start().await?;
    /// # let client = runtime.client();
    /// # client.start(order, "order-1", ()).await?;
    /// let seen = client.status("order-1").await?.key;
    /// # client.delete("order-1", true).await?;
    /// # client.start(order, "order-1", ()).await?;
    /// // Somebody deletes the order and starts another one with its id.
    /// let refused = client.bound_to(seen).terminate("order-1", "too old").await;
    /// assert!(matches!(refused, Err(ClientError::AnotherInstance { .. })));
    /// # runtime.shutdown().await
    /// # }
    /// ```
    #[must_use]
    pub fn bound_to(&self, key: InstanceKey) -> Client {
        Client { only: Some(key), ..self.clone() }
    }

    /// This client without its binding, for the other instances that a request concerns, such as children.
    pub(super) fn unbound(&self) -> Client {
        Client { only: None, ..self.clone() }
    }

    /// Tells an id that belongs to another instance from one that does not exist. A bound request finds neither.
    pub(super) async fn tell_apart<T>(
        &self,
        id: &str,
        done: Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        match (done, self.only) {
            (Err(ClientError::NotFound { .. }), Some(key)) => {
                let found = self.call(id, |store, reply| store.find(id, reply)).await?;
                let (is_another, id) = (found.is_some_and(|row| row.key != key), id.to_owned());
                Err(if is_another {
                    ClientError::AnotherInstance { id, key }
                } else {
                    ClientError::NotFound { id }
                })
            }
            (done, _) => done,
        }
    }
}
