//! Ways to refer to an external event.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use perennial_core::{NotOfType, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An external event, identified by its name and the type of its content.
///
/// ```
/// use perennial::ExternalEvent;
///
/// const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");
/// assert_eq!(APPROVED.name(), "approved");
///
/// // A name that is computed at run time.
/// let approved_by = ExternalEvent::<bool>::new(format!("approved by {}", "Ada"));
/// assert_eq!(approved_by.name(), "approved by Ada");
/// ```
pub struct ExternalEvent<T> {
    name: Cow<'static, str>,
    types: PhantomData<fn() -> T>,
}

impl<T> ExternalEvent<T> {
    /// Creates an event with a constant name.
    pub const fn named(name: &'static str) -> ExternalEvent<T> {
        ExternalEvent { name: Cow::Borrowed(name), types: PhantomData }
    }

    /// Creates an event with a name computed at run time. In an orchestration, compute the name from the
    /// input and from results, so that a replay computes the same name.
    pub fn new(name: impl Into<String>) -> ExternalEvent<T> {
        ExternalEvent { name: Cow::Owned(name.into()), types: PhantomData }
    }

    /// The name of the event.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<T> Clone for ExternalEvent<T> {
    fn clone(&self) -> ExternalEvent<T> {
        ExternalEvent { name: self.name.clone(), types: PhantomData }
    }
}

impl<T> fmt::Debug for ExternalEvent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExternalEvent").field(&self.name).finish()
    }
}

/// Refers to an event: an [`ExternalEvent`], or a name (the content is then text).
pub trait EventTarget {
    /// The type of the content.
    type Content;

    /// The name of the event.
    fn name(&self) -> Cow<'_, str>;

    /// Decodes the recorded content.
    fn read(payload: Payload) -> Result<Self::Content, NotOfType>;
}

impl<T: DeserializeOwned> EventTarget for ExternalEvent<T> {
    type Content = T;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(ExternalEvent::name(self))
    }

    fn read(payload: Payload) -> Result<T, NotOfType> {
        payload.decode_as()
    }
}

impl<T: DeserializeOwned> EventTarget for &ExternalEvent<T> {
    type Content = T;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(ExternalEvent::name(self))
    }

    fn read(payload: Payload) -> Result<T, NotOfType> {
        payload.decode_as()
    }
}

/// Values that can be sent with an event.
pub trait EventContent<T>: EventTarget {
    /// Encodes the content as it is recorded.
    fn encode(content: T) -> Result<Payload, serde_json::Error>;
}

impl<T: Serialize + DeserializeOwned> EventContent<T> for ExternalEvent<T> {
    fn encode(content: T) -> Result<Payload, serde_json::Error> {
        Payload::encode(&content)
    }
}

impl<T: Serialize + DeserializeOwned> EventContent<T> for &ExternalEvent<T> {
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
