//! A JSON value, kept as the text that is recorded.
//!
//! Payloads are embedded in events as JSON, never as strings within strings, and are parsed only by the code that needs
//! the value. Live code decodes the same text that is recorded, so a replay sees the same value.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::codec;

use super::not_of_type::NotOfType;
use super::same_json::same_json;

/// A JSON value, kept as text. Cloning is cheap.
///
/// ```
/// use perennial_core::Payload;
///
/// let order = Payload::encode(&("order-42", 5))?;
/// assert_eq!(order.as_json(), r#"["order-42",5]"#);
/// let (id, amount): (String, u32) = order.decode()?;
/// assert_eq!((id.as_str(), amount), ("order-42", 5));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct Payload(Arc<RawValue>);

impl Payload {
    /// The JSON value `null`.
    pub fn null() -> Payload {
        Payload::from_raw(RawValue::NULL.to_owned())
    }

    /// Encodes a value. Fails for values that JSON cannot represent, such as a map whose keys are not strings.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Payload, serde_json::Error> {
        to_raw_value(value).map(Payload::from_raw)
    }

    /// Takes text that already is JSON.
    pub fn from_json(text: impl Into<String>) -> Result<Payload, serde_json::Error> {
        RawValue::from_string(text.into()).map(Payload::from_raw)
    }

    /// Decodes the value.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_json())
    }

    /// Decodes the value; the error names the expected type.
    pub fn decode_as<T: DeserializeOwned>(&self) -> Result<T, NotOfType> {
        self.decode().map_err(|error| NotOfType { type_name: std::any::type_name::<T>(), error })
    }

    /// The content of a JSON string, or the JSON text of any other value.
    pub fn to_text(&self) -> String {
        self.decode::<String>().unwrap_or_else(|_| self.as_json().to_owned())
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }

    /// The length of the JSON text in bytes.
    pub fn size(&self) -> usize {
        self.as_json().len()
    }

    /// Whether this is the JSON value `null`.
    pub fn is_null(&self) -> bool {
        self.as_json() == "null"
    }

    pub(crate) fn from_raw(raw: Box<RawValue>) -> Payload {
        Payload(Arc::from(raw))
    }
}

/// Compares the texts, then the JSON values: object members unordered, numbers exact.
impl PartialEq for Payload {
    fn eq(&self, other: &Payload) -> bool {
        self.as_json() == other.as_json() || same_json(self.as_json(), other.as_json())
    }
}

/// Equal texts are equal, and JSON values are compared exactly.
impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

/// A string without its quotes; anything else as JSON.
impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Payload, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if codec::is_marked(raw.get()) {
            return codec::read(raw).map_err(serde::de::Error::custom);
        }
        Ok(Payload::from_raw(raw))
    }
}

impl From<serde_json::Value> for Payload {
    fn from(value: serde_json::Value) -> Payload {
        Payload::encode(&value).expect("a JSON value encodes")
    }
}

impl From<&str> for Payload {
    fn from(text: &str) -> Payload {
        Payload::encode(text).expect("a string encodes")
    }
}

impl From<String> for Payload {
    fn from(text: String) -> Payload {
        Payload::from(text.as_str())
    }
}

impl From<()> for Payload {
    fn from((): ()) -> Payload {
        Payload::null()
    }
}
