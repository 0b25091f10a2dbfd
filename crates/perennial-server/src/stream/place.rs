//! The cursor of a stream: a place in the history of each instance that it follows.

use perennial::{Client, ClientError, InstanceKey};

use crate::cursor;
use crate::problem::Problem;

/// After which turn of which execution of which instance the stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) key: InstanceKey,
    pub(crate) execution: u64,
    pub(crate) turn: u64,
}

const PLACE_BYTES: usize = 16 + 8 + 8;

/// The places of all instances of a stream, in the order in which they were named. `None` before the first turn of
/// whichever instance has the id.
#[derive(Debug)]
pub(crate) struct Places(Vec<Option<Place>>);

impl Places {
    /// Before the first turns.
    pub(crate) fn beginning(instances: usize) -> Places {
        Places(vec![None; instances])
    }

    /// After the turns that are recorded now.
    pub(crate) async fn now(client: &Client, ids: &[String]) -> Result<Places, Problem> {
        let mut places = Vec::new();
        for id in ids {
            places.push(match client.status(id).await {
                Ok(view) => {
                    let turn = client.bound_to(view.key).last_turn(id, view.execution).await?;
                    Some(Place { key: view.key, execution: view.execution, turn })
                }
                Err(ClientError::NotFound { .. }) => None,
                Err(error) => return Err(error.into()),
            });
        }
        Ok(Places(places))
    }

    pub(crate) fn of_instances(&self) -> impl Iterator<Item = Option<Place>> {
        self.0.iter().copied()
    }

    pub(crate) fn encode(ids: &[String], places: impl Iterator<Item = Option<Place>>) -> String {
        let mut bytes = Vec::new();
        for place in places {
            let place =
                place.unwrap_or(Place { key: InstanceKey::from_bytes([0; 16]), execution: 0, turn: 0 });
            bytes.extend_from_slice(place.key.as_bytes());
            bytes.extend_from_slice(&place.execution.to_be_bytes());
            bytes.extend_from_slice(&place.turn.to_be_bytes());
        }
        cursor::encode(&list(ids), &bytes)
    }

    pub(crate) fn decode(ids: &[String], text: &str) -> Result<Places, Problem> {
        let bytes = cursor::decode(&list(ids), text)?;
        if bytes.len() != ids.len() * PLACE_BYTES {
            return Err(cursor::wrong("it was not made by this API"));
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let place = |bytes: &[u8]| -> Result<Option<Place>, Problem> {
            let (execution, turn) = (number(&bytes[16..24]), number(&bytes[24..]));
            let key = cursor::instance_key(&bytes[..16])?;
            Ok((execution > 0).then_some(Place { key, execution, turn }))
        };
        Ok(Places(bytes.chunks(PLACE_BYTES).map(place).collect::<Result<_, _>>()?))
    }
}

/// Names the instances, so that a cursor is not used with others.
fn list(ids: &[String]) -> String {
    ids.iter().fold("stream".to_owned(), |list, id| format!("{list}\n{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h28_a_cursor_names_a_place_in_every_history() {
        let ids = ["a".to_owned(), "b".to_owned()];
        let place = Place { key: InstanceKey::from_bytes([7; 16]), execution: 3, turn: 1 << 40 };
        let text = Places::encode(&ids, [Some(place), None].into_iter());
        let places = Places::decode(&ids, &text).unwrap();
        assert_eq!(places.of_instances().collect::<Vec<_>>(), [Some(place), None]);
        assert!(Places::decode(&ids[..1], &text).is_err(), "of another stream");
        assert!(Places::decode(&ids, "now").is_err());
    }
}
