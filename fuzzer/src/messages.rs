//! Bytes as the bodies of rows: messages, task work, requests, replies and settings.
//!
//! A body has a checksum, which no mutation meets. So the text of a body is also read without one, and sealed again.

use perennial_core::shard::{CallReply, InstanceCall, Message, TaskWork};
use perennial_core::store::{MoveMark, NodeInfo, PausedOrchestrations};

/// Reads the bytes as everything, and checks that what is read survives writing.
macro_rules! survives {
    ($body:ty, $input:expr) => {{
        if let Ok(body) = <$body>::decode($input) {
            let again = <$body>::decode(&body.encode());
            assert!(again.is_ok_and(|again| again.encode() == body.encode()), "a body changed: {body:?}");
        }
        match serde_json::from_slice::<$body>($input) {
            Ok(body) => {
                let sealed = body.encode();
                if let Ok(again) = <$body>::decode(&sealed) {
                    assert_eq!(again.encode(), sealed, "a body changed: {body:?}");
                }
                true
            }
            Err(_) => false,
        }
    }};
}

pub(crate) fn run(input: &[u8]) -> bool {
    let settings = MoveMark::decode(input).is_ok() | PausedOrchestrations::decode(Some(input)).is_ok();
    let _ = NodeInfo::decode(input);
    let bodies = [
        survives!(Message, input),
        survives!(InstanceCall, input),
        survives!(CallReply, input),
        survives!(TaskWork, input),
    ];
    settings || bodies.contains(&true)
}
