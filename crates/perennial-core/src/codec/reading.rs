//! Decodes payloads while the JSON around them is parsed.
//!
//! A payload can occur anywhere in a turn or a body, so it is decoded by its own deserializer, which finds the mode
//! here, in a thread-local. Outside [`reading`], encoded payloads are left in their stored form.

use std::cell::RefCell;

use serde_json::value::RawValue;

use super::{CodecError, Codecs, EncodedPayload, PayloadContext, Undecodable};
use crate::history::Payload;

/// How encoded payloads are treated.
#[derive(Clone)]
pub(crate) enum Mode {
    /// They are decoded. A payload that cannot be decoded ends the parsing.
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

/// Parses with a mode. Also returns the first payload that could not be decoded, because the parser's error has only
/// its text.
pub(crate) fn reading<T>(mode: Mode, read: impl FnOnce() -> T) -> (T, Option<Undecodable>) {
    /// Restores the previous mode, even if the parser panics.
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

/// Applies the mode to a payload that is marked as encoded.
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
        // No codec is called while the cell is borrowed: it is user code and may call back.
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
