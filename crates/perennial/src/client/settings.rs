//! Small shared documents that tools keep in a store.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Client;
use crate::error::ClientError;

/// Keeps the documents apart from the settings of the engine.
const PREFIX: &str = "tools/";
/// How often a change is tried while others change the same document.
const TRIES: usize = 20;

impl Client {
    /// Returns the document that tools have left in the store under a name, such as saved views. `None` if there is none.
    pub async fn document<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ClientError> {
        let stored = self.read_document(name).await?;
        stored.map(|stored| read(name, &stored)).transpose()
    }

    /// Changes the document with a name, for everybody who uses the store. `change` gets the current document, or the
    /// default one, and returns whether it changed something; it is called again if somebody else was faster. Keep
    /// documents small: each change writes the whole document.
    pub async fn change_document<T, R>(
        &self,
        name: &str,
        mut change: impl FnMut(&mut T) -> Result<R, ClientError>,
    ) -> Result<R, ClientError>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        for _ in 0..TRIES {
            let before = self.read_document(name).await?;
            let mut document: T = match &before {
                Some(stored) => read(name, stored)?,
                None => T::default(),
            };
            let outcome = change(&mut document)?;
            let after: Arc<[u8]> =
                serde_json::to_vec(&document).map_err(|error| ClientError::unwritable("", error))?.into();
            if before.as_deref() == Some(&*after) {
                return Ok(outcome);
            }
            let setting = format!("{PREFIX}{name}");
            let write =
                self.call("", |store, reply| store.write_setting(&setting, before, Some(after), reply));
            if write.await? {
                return Ok(outcome);
            }
        }
        let reason = format!("others changed {name:?} all the time");
        Err(ClientError::Unknown { id: String::new(), reason })
    }

    async fn read_document(&self, name: &str) -> Result<Option<Arc<[u8]>>, ClientError> {
        let setting = format!("{PREFIX}{name}");
        self.call("", |store, reply| store.read_setting(&setting, reply)).await
    }
}

fn read<T: DeserializeOwned>(name: &str, stored: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(stored).map_err(|problem| {
        let source = perennial_core::store::StoreError::CorruptRow(format!("document {name:?}: {problem}"));
        ClientError::Store { id: String::new(), source }
    })
}
