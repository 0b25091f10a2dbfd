//! The encoding of turns.
//!
//! An event is written as `{"id":2,"unit":"p0","event":{"ActivityScheduled":{…}}}`: externally tagged, payloads
//! embedded, `unit` only on decisions and only below the root. Decoding takes one strict pass; only if that fails is
//! the text parsed again, to find the event at fault and whether a newer engine wrote it.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, EnumAccess, IntoDeserializer, VariantAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::codec::{self, CodecError, Codecs, Mode, PayloadContext, PayloadFormatter};

use super::{
    CorruptHistory, Decision, Ending, Event, EventId, EventKind, FORMAT, History, HistoryError, Job, Ledger,
    Started, Turn, UnitId, shorten,
};

/// Encodes a turn as it is stored when no codecs are configured.
pub fn encode_turn(turn: &Turn) -> Vec<u8> {
    encode_turn_with(turn, &Codecs::default(), PayloadContext::default()).expect("no codec can fail")
}

/// Encodes a turn as it is stored.
pub(crate) fn encode_turn_with(
    turn: &Turn,
    codecs: &Codecs,
    context: PayloadContext,
) -> Result<Vec<u8>, CodecError> {
    // The approximate size of a turn without payloads, so that the buffer rarely grows.
    let mut bytes = Vec::with_capacity(128 + 192 * turn.events.len());
    PayloadFormatter { codecs, context }.write(&mut bytes, turn)?;
    Ok(bytes)
}

/// Decodes the bytes of turn `number`, strictly. Encoded payloads are left as they are stored. The [`Ledger`] checks
/// the turn's place in its history.
pub fn decode_turn(number: u64, bytes: &[u8]) -> Result<Turn, HistoryError> {
    match serde_json::from_slice::<Turn>(bytes) {
        Ok(turn) => check_format(number, turn.format).map(|()| turn),
        Err(error) => Err(explain(number, bytes, &error)),
    }
}

/// Decodes the bytes of turn `number` and the payloads in it.
pub(crate) fn decode_turn_with(number: u64, bytes: &[u8], mode: &Mode) -> Result<Turn, HistoryError> {
    let (decoded, undecodable) = codec::reading(mode.clone(), || decode_turn(number, bytes));
    match (decoded, undecodable) {
        // The decoder's error wraps the codec's: it names the event.
        (Err(HistoryError::Corrupt(corrupt)), Some(cause)) => {
            Err(HistoryError::Undecodable { turn: number, event: corrupt.event, cause })
        }
        (decoded, _) => decoded,
    }
}

/// Decodes a whole execution and validates it as a history.
pub fn decode_history<B: AsRef<[u8]>>(turns: impl IntoIterator<Item = B>) -> Result<History, HistoryError> {
    let mut ledger = Ledger::default();
    let mut history = History::default();
    for (number, bytes) in (1..).zip(turns) {
        let turn = decode_turn(number, bytes.as_ref())?;
        ledger.apply_turn(&turn)?;
        history.turns.push(turn);
    }
    Ok(history)
}

/// Finds out what is wrong with bytes that did not decode.
fn explain(number: u64, bytes: &[u8], error: &serde_json::Error) -> HistoryError {
    #[derive(Deserialize)]
    struct Stamp {
        format: u32,
    }
    #[derive(Deserialize)]
    struct Loose<'a> {
        #[serde(borrow)]
        events: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct LooseEvent {
        id: EventId,
    }

    if let Ok(Stamp { format }) = serde_json::from_slice(bytes)
        && let Err(unknown) = check_format(number, format)
    {
        return unknown;
    }
    if let Ok(Loose { events }) = serde_json::from_slice::<Loose<'_>>(bytes) {
        for (position, event) in events.iter().enumerate() {
            let Err(error) = serde_json::from_str::<Event>(event.get()) else {
                continue;
            };
            let id = serde_json::from_str::<LooseEvent>(event.get()).ok().map(|event| event.id);
            let problem = format!("event at position {position} of the turn: {}", words(&error));
            return CorruptHistory { turn: number, event: id, problem }.into();
        }
    }
    CorruptHistory::turn(number, words(error)).into()
}

/// Whether turns of this format can be read.
pub(super) fn check_format(turn: u64, found: u32) -> Result<(), HistoryError> {
    match found {
        FORMAT => Ok(()),
        0 => Err(CorruptHistory::turn(turn, "format 0 was never written").into()),
        _ => Err(HistoryError::NewerEngine { turn, what: "format", found, known: FORMAT }),
    }
}

/// The decoder's message, shortened: it can quote text of any length.
fn words(error: &serde_json::Error) -> String {
    shorten(&error.to_string(), 200)
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let unit = match &self.kind {
            EventKind::Decision { unit, .. } if !unit.is_root() => Some(unit),
            _ => None,
        };
        let mut event = serializer.serialize_struct("Event", 2 + usize::from(unit.is_some()))?;
        event.serialize_field("id", &self.id)?;
        match unit {
            Some(unit) => event.serialize_field("unit", unit)?,
            None => event.skip_field("unit")?,
        }
        match &self.kind {
            EventKind::Started(started) => event.serialize_field("event", &Tagged(Started::NAME, started))?,
            EventKind::Job(job) => event.serialize_field("event", job)?,
            EventKind::Decision { decision, .. } => event.serialize_field("event", decision)?,
            EventKind::Ended(ending) => event.serialize_field("event", ending)?,
        }
        event.end()
    }
}

/// Serialises a struct like a variant of an enum.
struct Tagged<'a>(&'static str, &'a Started);

impl Serialize for Tagged<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_variant("Event", 0, self.0, self.1)
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Event, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Wire {
            id: EventId,
            #[serde(default)]
            unit: Option<UnitId>,
            event: Untyped,
        }

        let Wire { id, unit, event } = Wire::deserialize(deserializer)?;
        if unit.as_ref().is_some_and(UnitId::is_root) {
            return Err(de::Error::custom("the root unit is not written out"));
        }
        let kind = match (event, unit) {
            (Untyped::Decision(decision), unit) => {
                EventKind::Decision { unit: unit.unwrap_or_default(), decision }
            }
            (_, Some(_)) => return Err(de::Error::custom("only decisions have a unit")),
            (Untyped::Started(started), None) => EventKind::Started(started),
            (Untyped::Job(job), None) => EventKind::Job(job),
            (Untyped::Ended(ending), None) => EventKind::Ended(ending),
        };
        Ok(Event { id, kind })
    }
}

/// The kind of an event before its unit is known.
enum Untyped {
    Started(Box<Started>),
    Job(Job),
    Decision(Decision),
    Ended(Ending),
}

impl<'de> Deserialize<'de> for Untyped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Untyped, D::Error> {
        struct ByFamily;

        impl<'de> Visitor<'de> for ByFamily {
            type Value = Untyped;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }

            fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Untyped, A::Error> {
                let (family, rest) = access.variant::<Family>()?;
                match family {
                    Family::Started => rest.newtype_variant().map(Untyped::Started),
                    Family::Job(name) => Job::deserialize(Resumed { name, rest }).map(Untyped::Job),
                    Family::Decision(name) => {
                        Decision::deserialize(Resumed { name, rest }).map(Untyped::Decision)
                    }
                    Family::Ended(name) => Ending::deserialize(Resumed { name, rest }).map(Untyped::Ended),
                }
            }
        }

        deserializer.deserialize_enum("Event", &[], ByFamily)
    }
}

/// The family of a kind, with its name in the form that the family's decoder expects.
enum Family {
    Started,
    Job(&'static str),
    Decision(&'static str),
    Ended(&'static str),
}

impl<'de> Deserialize<'de> for Family {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Family, D::Error> {
        struct ByName;

        impl Visitor<'_> for ByName {
            type Value = Family;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an event kind")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Family, E> {
                let among = |names: &[&'static str]| names.iter().copied().find(|name| *name == text);
                if let Some(name) = among(&Job::NAMES) {
                    Ok(Family::Job(name))
                } else if let Some(name) = among(&Decision::NAMES) {
                    Ok(Family::Decision(name))
                } else if let Some(name) = among(&Ending::NAMES) {
                    Ok(Family::Ended(name))
                } else if text == Started::NAME {
                    Ok(Family::Started)
                } else {
                    Err(E::custom(format_args!("unknown event kind {:?}", shorten(text, 60))))
                }
            }
        }

        deserializer.deserialize_identifier(ByName)
    }
}

/// An enum whose variant name has already been read, passed on to the decoder of its family.
struct Resumed<A> {
    name: &'static str,
    rest: A,
}

impl<'de, A: VariantAccess<'de>> Deserializer<'de> for Resumed<A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_enum(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, A: VariantAccess<'de>> EnumAccess<'de> for Resumed<A> {
    type Error = A::Error;
    type Variant = A;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, A), A::Error> {
        let name: StrDeserializer<'_, A::Error> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self.rest))
    }
}
