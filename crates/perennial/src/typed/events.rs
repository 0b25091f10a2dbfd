//! What stands for an external event.

use std::borrow::Cow;

use perennial_core::{NotOfType, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::described::Event;

/// Something that stands for an event: an [`Event`], or a name (then what comes with it is text).
pub trait EventTarget {
    /// What comes with it.
    type Content;

    /// The event's name.
    fn name(&self) -> Cow<'_, str>;

    /// What came with it, of what is recorded.
    fn read(payload: Payload) -> Result<Self::Content, NotOfType>;
}

impl<T: DeserializeOwned> EventTarget for Event<T> {
    type Content = T;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(Event::name(self))
    }

    fn read(payload: Payload) -> Result<T, NotOfType> {
        payload.decode_as()
    }
}

/// An event together with what may be sent with it.
pub trait EventContent<T>: EventTarget {
    /// What is sent, as it is recorded.
    fn encode(content: T) -> Result<Payload, serde_json::Error>;
}

impl<T: Serialize + DeserializeOwned> EventContent<T> for Event<T> {
    fn encode(content: T) -> Result<Payload, serde_json::Error> {
        Payload::encode(&content)
    }
}

macro_rules! names {
    ($($name:ty),*) => {$(
impl EventTarget for $name {
    type Content = String;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self[..])
    }

    fn read(payload: Payload) -> Result<String, NotOfType> {
        Ok(payload.to_text())
    }
}

impl<T: Into<Payload>> EventContent<T> for $name {
    fn encode(content: T) -> Result<Payload, serde_json::Error> {
        Ok(content.into())
    }
}
    )*};
}

names!(&str, &&str, &String, String);
