//! Decoding payloads while the JSON around them is read.
//!
//! A payload can stand anywhere in a turn or a body, so it is decoded by its own deserializer, which finds here what it has
//! to do. Outside of [`reading`] encoded payloads are left as they are stored.

use std::cell::RefCell;

use serde_json::value::RawValue;

use super::{CodecError, Codecs, EncodedPayload, PayloadContext, Undecodable};
use crate::history::Payload;

/// What becomes of encoded payloads.
#[derive(Clone)]
pub(crate) enum Mode {
    /// They are decoded. One that cannot be ends the reading.
    Decode(Codecs, PayloadContext),
    /// They are replaced by their markers.
    Mark,
}

struct Reading {
    mode: Mode,
    failure: Option<Undecodable>,
}

thread_local! {
    static READING: RefCell<Option<Reading>> = const { RefCell::new(None) };
}

/// Reads with a mode, and returns the first payload that could not be decoded too, if there was one: the reader knows only
/// its text.
pub(crate) fn reading<T>(mode: Mode, read: impl FnOnce() -> T) -> (T, Option<Undecodable>) {
    /// Puts back what was there before, even if the reader panics.
    struct Restore(Option<Reading>);

    impl Drop for Restore {
        fn drop(&mut self) {
            READING.set(self.0.take());
        }
    }

    let _restore = Restore(READING.replace(Some(Reading { mode, failure: None })));
    let value = read();
    let failure =
        READING.with_borrow_mut(|reading| reading.as_mut().and_then(|reading| reading.failure.take()));
    (value, failure)
}

/// What a payload is whose text is marked as encoded.
pub(crate) fn read(raw: Box<RawValue>) -> Result<Payload, Undecodable> {
    let stored = Payload::from_raw(raw);
    let Some(mode) = READING.with_borrow(|reading| reading.as_ref().map(|reading| reading.mode.clone()))
    else {
        return Ok(stored);
    };
    let encoded = EncodedPayload::parse(stored.as_json());
    let (codecs, context) = match (mode, &encoded) {
        (Mode::Decode(codecs, context), _) => (codecs, context),
        (Mode::Mark, Some(encoded)) if encoded.steps.is_empty() => {
            (Codecs::default(), PayloadContext::default())
        }
        (Mode::Mark, Some(encoded)) => return Ok(encoded.marker()),
        (Mode::Mark, None) => return Ok(stored),
    };
    let decoded = match &encoded {
        // No codec is called while the cell is borrowed: its code is the user's.
        Some(encoded) => codecs.decode_form(encoded, &context),
        None => {
            let error = CodecError::Failed("the encoded payload was changed".to_owned());
            Err(Undecodable { codec: "unknown".to_owned(), key: None, error })
        }
    };
    decoded.inspect_err(|failure| {
        READING.with_borrow_mut(|reading| {
            if let Some(reading) = reading {
                reading.failure.get_or_insert_with(|| failure.clone());
            }
        });
    })
}
