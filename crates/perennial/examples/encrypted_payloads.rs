//! Payloads that only the runtime can read: authenticated encryption with key ids, and a key rotation while
//! an instance waits.

use std::collections::BTreeMap;

use chacha20poly1305::aead::{Aead, AeadCore, KeyInit, OsRng, Payload as Sealed};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use perennial::codec::{CodecError, Codecs, Encoded, PayloadCodec, PayloadContext};
use perennial::history::Ending;
use perennial::prelude::*;

const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");
const NONCE_BYTES: usize = 24;

/// Encrypts with the current key, and decrypts with any known key. In a real program the keys come from a key
/// service.
struct Encrypt {
    keys: BTreeMap<String, XChaCha20Poly1305>,
    current: String,
}

impl Encrypt {
    /// The last of the keys is the current one.
    fn with_keys(keys: &[(&str, Key)]) -> Encrypt {
        let ciphers = keys.iter().map(|(id, key)| ((*id).to_owned(), XChaCha20Poly1305::new(key)));
        let (current, _) = keys.last().expect("there is a key");
        Encrypt { keys: ciphers.collect(), current: (*current).to_owned() }
    }
}

/// A payload that was copied to another instance, or whose key id was changed, cannot be decrypted.
fn associated(key: &str, context: &PayloadContext) -> Vec<u8> {
    let instance = context.instance.map_or_else(String::new, |instance| instance.to_string());
    format!("{key}/{instance}").into_bytes()
}

impl PayloadCodec for Encrypt {
    fn name(&self) -> &str {
        "xchacha20poly1305"
    }

    fn encode(&self, bytes: &[u8], context: &PayloadContext) -> Result<Option<Encoded>, CodecError> {
        // Long enough to be random for each payload.
        let nonce = XChaCha20Poly1305::generate_nonce(&mut OsRng);
        let sealed = Sealed { msg: bytes, aad: &associated(&self.current, context) };
        let sealed = self.keys[&self.current].encrypt(&nonce, sealed);
        let sealed = sealed.map_err(|_| CodecError::Failed("the payload is too long".to_owned()))?;
        let bytes = [nonce.as_slice(), &sealed].concat();
        Ok(Some(Encoded { key: Some(self.current.clone()), bytes }))
    }

    fn decode(&self, encoded: &Encoded, context: &PayloadContext) -> Result<Vec<u8>, CodecError> {
        let key = encoded.key.as_deref().unwrap_or_default();
        let cipher = self.keys.get(key).ok_or_else(|| CodecError::MissingKey(key.to_owned()))?;
        let parts = encoded.bytes.split_at_checked(NONCE_BYTES);
        let opened = parts.and_then(|(nonce, sealed)| {
            let sealed = Sealed { msg: sealed, aad: &associated(key, context) };
            cipher.decrypt(XNonce::from_slice(nonce), sealed).ok()
        });
        opened.ok_or_else(|| {
            CodecError::Failed("the payload was changed, or belongs to another instance".to_owned())
        })
    }
}

#[orchestration]
async fn transfer(ctx: OrchestrationContext, account: String) -> Result<String, String> {
    match ctx.schedule_wait(APPROVED).await {
        true => Ok(format!("sent to {account}")),
        false => Err("refused".to_owned()),
    }
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = format!("sqlite:{}", directory.path().join("bank.db").display());
    let may = ("may", XChaCha20Poly1305::generate_key(&mut OsRng));
    let june = ("june", XChaCha20Poly1305::generate_key(&mut OsRng));

    let runtime = Runtime::open(&url).codec(Encrypt::with_keys(&[may])).register(transfer).start().await?;
    runtime.client().start(transfer, "t-1", "account 4711".to_owned()).await?;
    runtime.shutdown().await?;

    // New payloads use June's key; May's key is kept for as long as payloads need it.
    let codecs = Codecs::default().with(Encrypt::with_keys(&[may, june]));
    let runtime = Runtime::open(&url).codecs(codecs.clone()).register(transfer).start().await?;
    let client = Client::open_with_codecs(&url, codecs)?;
    client.raise_event("t-1", APPROVED, true).await?;
    println!("with the keys: {}", client.result("t-1").await?);

    // Without the keys, the events are visible but not their payloads.
    let history = Client::open(&url)?.history("t-1").await?;
    let started = history.turns[0].started().expect("a history begins with its start");
    println!("without: {} with {}", started.name, started.input.as_json());
    match Client::open(&url)?.history("t-1").await?.ending() {
        Some(Ending::OrchestrationCompleted { output }) => {
            println!("without: completed with {}", output.as_json())
        }
        other => println!("not completed: {other:?}"),
    }
    runtime.shutdown().await
}
