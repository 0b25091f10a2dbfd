use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::codec::{Encoded, PayloadCodec};
use crate::history::{EventId, Payload, Trail};
use crate::instance::{InstanceKey, ShardId};
use crate::shard::ActivityTask;
use crate::store::{TaskId, TaskState};

/// Reverses bytes, unless its key is lost.
struct Reversed(Arc<AtomicBool>);

impl PayloadCodec for Reversed {
    fn name(&self) -> &str {
        "reversed"
    }

    fn encode(&self, bytes: &[u8], _: &PayloadContext) -> Result<Option<Encoded>, CodecError> {
        Ok(Some(Encoded { key: None, bytes: bytes.iter().rev().copied().collect() }))
    }

    fn decode(&self, encoded: &Encoded, _: &PayloadContext) -> Result<Vec<u8>, CodecError> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(CodecError::MissingKey("any".to_owned())),
            false => Ok(encoded.bytes.iter().rev().copied().collect()),
        }
    }
}

fn recoder() -> (Recoder, Arc<AtomicBool>) {
    let is_lost = Arc::new(AtomicBool::new(false));
    (Recoder { codecs: Codecs::default().with(Reversed(Arc::clone(&is_lost))) }, is_lost)
}

fn row(details: Payload) -> TaskRow {
    let work = TaskWork {
        activity_id: None,
        instance: "a".to_owned(),
        input: "input".into(),
        options: None,
        deadline_ms: None,
        queued_ms: 0,
        handed_over: None,
        open: None,
        trace: None,
    };
    TaskRow {
        id: TaskId { key: InstanceKey::new(1, 1), execution: 1, event: EventId(2) },
        shard: ShardId::of("a"),
        attempt: 1,
        state: TaskState::Queued,
        due_ms: None,
        since_ms: None,
        details: Some(details),
        heard_ms: None,
        interruptions: 0,
        begun: None,
        past: Trail::default(),
        name: "activity".to_owned(),
        tag: None,
        work: Some(work.encode()),
    }
}

fn decoded(recoder: &Recoder, stored: &TaskRow) -> TaskRow {
    let mut row = stored.clone();
    recoder.decode_task(&mut row);
    row
}

#[test]
fn s11_a_row_that_could_not_be_decoded_is_written_back_as_it_was_stored() {
    let (recoder, is_lost) = recoder();
    let plain = row("details".into());
    let mut stored = recoder.encode_task(&plain).unwrap();
    let first = stored.clone();
    for _ in 0..3 {
        is_lost.store(true, Ordering::Relaxed);
        let undecoded = decoded(&recoder, &stored);
        assert!(ActivityTask::from_row(&undecoded).is_err());
        stored = recoder.encode_task(&TaskRow { interruptions: 1, ..undecoded }).unwrap();
    }
    assert_eq!(stored, TaskRow { interruptions: 1, ..first });
    is_lost.store(false, Ordering::Relaxed);
    assert_eq!(decoded(&recoder, &stored), TaskRow { interruptions: 1, ..plain });
}

#[test]
fn s10_details_that_only_look_encoded_are_read_back_as_themselves() {
    let looks = [
        r#"{"@codec":[["elsewhere","k1"]],"size":1,"data":"QQ=="}"#,
        r#"{"@codec":[],"size":1,"data":"QQ=="}"#,
        r#"{"@codec":[["elsewhere"]],"size":1}"#,
        r#"{"@codec":7}"#,
    ];
    for codecs in [recoder().0, Recoder { codecs: Codecs::default() }] {
        for look in looks {
            let look = Payload::from_json(look).unwrap();
            let written = row(quoted(&look));
            // It is also written back as it was read.
            let stored = codecs.encode_task(&again(&codecs, &written)).unwrap();
            let read = ActivityTask::from_row(&decoded(&codecs, &stored)).unwrap();
            assert_eq!(unquoted(&read.details.unwrap()), Ok(look));
        }
    }
}

fn again(recoder: &Recoder, written: &TaskRow) -> TaskRow {
    decoded(recoder, &recoder.encode_task(written).unwrap())
}
