//! Runs with encoded payloads, with a codec whose keys change and are sometimes missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use perennial_core::InstanceKey;
use perennial_core::codec::{CodecError, Codecs, Encoded, EncodedStore, PayloadCodec, PayloadContext};
use perennial_core::history::encode_turn;
use perennial_core::shard::Message;
use perennial_core::store::{MemoryStore, Store, StoreError, TurnRow};

use super::Simulation;
use super::plan::Plan;
use crate::Rng;
use crate::invariants::Snapshot;

/// A separate generator, so that other draws do not change.
const SALT: u64 = 0x00C0_DEC5;

/// The calls of codecs, and whether they still fail.
#[derive(Default)]
pub(super) struct CodecLog {
    calls: AtomicU64,
    encoded: AtomicU64,
    failed: AtomicU64,
    is_healed: AtomicBool,
}

struct Simulated {
    log: Arc<CodecLog>,
    /// One out of this many calls fails.
    fails_each: u64,
}

impl Simulated {
    fn fails(&self) -> bool {
        let call = self.log.calls.fetch_add(1, Ordering::Relaxed);
        let fails =
            call % self.fails_each == self.fails_each - 1 && !self.log.is_healed.load(Ordering::Relaxed);
        self.log.failed.fetch_add(u64::from(fails), Ordering::Relaxed);
        fails
    }
}

impl PayloadCodec for Simulated {
    fn name(&self) -> &str {
        "simulated"
    }

    fn encode(&self, bytes: &[u8], context: &PayloadContext) -> Result<Option<Encoded>, CodecError> {
        if self.fails() {
            return Err(CodecError::MissingKey("any".to_owned()));
        }
        // The key changes, so that no payload is stored twice with the same bytes.
        let key = (self.log.encoded.fetch_add(1, Ordering::Relaxed) % 251) as u8;
        let mut plain = bound_to(context);
        plain.extend_from_slice(bytes);
        let bytes = plain.into_iter().map(|byte| byte ^ key).collect();
        Ok(Some(Encoded { key: Some(key.to_string()), bytes }))
    }

    fn decode(&self, encoded: &Encoded, context: &PayloadContext) -> Result<Vec<u8>, CodecError> {
        let name = encoded.key.clone().unwrap_or_default();
        let key: u8 = name.parse().map_err(|_| CodecError::MissingKey(name.clone()))?;
        if self.fails() {
            return Err(CodecError::MissingKey(name));
        }
        let plain: Vec<u8> = encoded.bytes.iter().map(|byte| byte ^ key).collect();
        let bytes = plain.strip_prefix(&*bound_to(context));
        bytes
            .map(<[u8]>::to_vec)
            .ok_or_else(|| CodecError::Failed("it belongs to another instance".to_owned()))
    }
}

fn bound_to(context: &PayloadContext) -> Vec<u8> {
    context.instance.map_or_else(Vec::new, |key| key.as_bytes().to_vec())
}

/// Draws whether a run has codecs, and whether its processes serve activities by pattern.
pub(super) fn draw(seed: u64, plan: &mut Plan, log: &Arc<CodecLog>) {
    let mut rng = Rng::new(seed ^ SALT);
    if rng.percent(25) {
        let fails_each = *rng.pick(&[40, 200, u64::MAX]);
        plan.shard.codecs = Codecs::default().with(Simulated { log: Arc::clone(log), fails_each });
    }
    for served in &mut plan.served {
        if rng.percent(25) {
            served.names.clear();
            served.prefixes = [rng.pick(&["activity-", "act", ""]).to_string()].into();
        }
    }
}

/// The store as processes and callers use it.
pub(super) fn store_of(store: &Arc<MemoryStore>, codecs: &Codecs) -> Arc<dyn Store> {
    let stored: Arc<dyn Store> = Arc::clone(store) as Arc<dyn Store>;
    if codecs.is_empty() {
        stored
    } else {
        Arc::new(EncodedStore::new(stored, codecs.clone(), |task| task()))
    }
}

impl Simulation {
    pub(super) fn heal_codecs(&mut self) {
        self.codec_log.is_healed.store(true, Ordering::Relaxed);
    }

    /// Runs `look` with codecs that do not fail.
    pub(super) fn with_sound_codecs<T>(&self, look: impl FnOnce(&Codecs) -> T) -> T {
        let before = self.codec_log.is_healed.swap(true, Ordering::Relaxed);
        let seen = look(&self.plan.shard.codecs);
        self.codec_log.is_healed.store(before, Ordering::Relaxed);
        seen
    }

    /// The body of a message with decoded payloads. A damaged one stays as it is.
    pub(super) fn plain_body(&self, body: &Arc<[u8]>) -> Arc<[u8]> {
        self.with_sound_codecs(|codecs| match Message::decode_with(codecs, body) {
            Ok(message) if !codecs.is_empty() => message.encode(),
            _ => Arc::clone(body),
        })
    }

    /// The bytes of a turn with decoded payloads. A damaged one stays as it is.
    pub(super) fn plain_turn(&self, key: InstanceKey, row: &TurnRow) -> Arc<[u8]> {
        self.with_sound_codecs(|codecs| match row.decode(codecs, key) {
            Ok(turn) if !codecs.is_empty() => encode_turn(&turn).into(),
            _ => Arc::clone(&row.bytes),
        })
    }

    /// A snapshot of the store with decoded payloads.
    pub(super) fn decoded_snapshot(&self) -> Result<Snapshot, StoreError> {
        self.with_sound_codecs(|codecs| {
            let mut snapshot = Snapshot::read_memory(&self.store)?;
            if codecs.is_empty() {
                return Ok(snapshot);
            }
            snapshot.instances = Snapshot::read(&*self.coded)?.instances;
            for instance in &mut snapshot.instances {
                let key = instance.row.key;
                for (execution, turns) in &mut instance.executions {
                    for (number, bytes) in (1..).zip(turns) {
                        let (execution, checksum) = (*execution, 0);
                        let row = TurnRow { execution, number, bytes: Arc::clone(bytes), checksum };
                        *bytes = self.plain_turn(key, &row);
                    }
                }
            }
            Ok(snapshot)
        })
    }

    pub(super) fn count_codecs(&mut self) {
        let encoded = self.codec_log.encoded.load(Ordering::Relaxed);
        let failed = self.codec_log.failed.load(Ordering::Relaxed);
        for (what, count) in [("payload encoded", encoded), ("codec without its key", failed)] {
            *self.tally.0.entry(what).or_default() += count;
        }
        let by_pattern = self.plan.served.iter().filter(|served| !served.prefixes.is_empty()).count();
        *self.tally.0.entry("process that serves by pattern").or_default() += by_pattern as u64;
    }
}
