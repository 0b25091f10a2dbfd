//! What stands for an external event.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use perennial_core::{NotOfType, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An external event known by its name and type.
///
/// ```
/// use perennial::Event;
///
/// const APPROVED: Event<bool> = Event::named("approved");
/// assert_eq!(APPROVED.name(), "approved");
///
/// // A name that is made at run time.
/// let approved_by = Event::<bool>::new(format!("approved by {}", "Ada"));
/// assert_eq!(approved_by.name(), "approved by Ada");
/// ```
pub struct Event<T> {
    name: Cow<'static, str>,
    types: PhantomData<fn() -> T>,
}

impl<T> Event<T> {
    /// The event with a name that the code knows, for constants.
    pub const fn named(name: &'static str) -> Event<T> {
        Event { name: Cow::Borrowed(name), types: PhantomData }
    }

    /// The event with a name that is made at run time. In an orchestration it has to be made from its input and results,
    /// so that a replay makes the same.
    pub fn new(name: impl Into<String>) -> Event<T> {
        Event { name: Cow::Owned(name.into()), types: PhantomData }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<T> Clone for Event<T> {
    fn clone(&self) -> Event<T> {
        Event { name: self.name.clone(), types: PhantomData }
    }
}

impl<T> fmt::Debug for Event<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Event").field(&self.name).finish()
    }
}

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

impl<T: DeserializeOwned> EventTarget for &Event<T> {
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

impl<T: Serialize + DeserializeOwned> EventContent<T> for &Event<T> {
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
