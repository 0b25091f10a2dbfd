//! The cursor of a stream: a place in the history of each instance that it follows. Each is named, so that a stream of other
//! instances can go on with those that it has in common.

use perennial::{Client, ClientError, InstanceKey};
use sha2::{Digest, Sha256};

use crate::cursor;
use crate::problem::Problem;

/// After which turn of which execution of which instance the stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) key: InstanceKey,
    pub(crate) execution: u64,
    pub(crate) turn: u64,
}

const NAME_BYTES: usize = 8;
const PLACE_BYTES: usize = NAME_BYTES + 16 + 8 + 8;
/// Names cursors of streams.
const LIST: &str = "stream";

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
        Places::beginning(ids.len()).or_now(client, ids, &vec![false; ids.len()]).await
    }

    /// These places, and for instances that are not known, after the turns that are recorded now.
    pub(crate) async fn or_now(
        mut self,
        client: &Client,
        ids: &[String],
        known: &[bool],
    ) -> Result<Places, Problem> {
        for ((id, place), _) in ids.iter().zip(&mut self.0).zip(known).filter(|(_, known)| !**known) {
            *place = match client.status(id).await {
                Ok(view) => {
                    let turn = client.bound_to(view.key).last_turn(id, view.execution).await?;
                    Some(Place { key: view.key, execution: view.execution, turn })
                }
                Err(ClientError::NotFound { .. }) => None,
                Err(error) => return Err(error.into()),
            };
        }
        Ok(self)
    }

    pub(crate) fn of_instances(&self) -> impl Iterator<Item = Option<Place>> {
        self.0.iter().copied()
    }

    pub(crate) fn encode(ids: &[String], places: impl Iterator<Item = Option<Place>>) -> String {
        let mut bytes = Vec::new();
        for (id, place) in ids.iter().zip(places) {
            let place =
                place.unwrap_or(Place { key: InstanceKey::from_bytes([0; 16]), execution: 0, turn: 0 });
            bytes.extend_from_slice(&name(id));
            bytes.extend_from_slice(place.key.as_bytes());
            bytes.extend_from_slice(&place.execution.to_be_bytes());
            bytes.extend_from_slice(&place.turn.to_be_bytes());
        }
        cursor::encode(LIST, &bytes)
    }

    /// The places of instances in a cursor, and which of them it knows.
    pub(crate) fn decode(ids: &[String], text: &str) -> Result<(Places, Vec<bool>), Problem> {
        let bytes = cursor::decode(LIST, text)?;
        if bytes.len() % PLACE_BYTES != 0 {
            return Err(cursor::wrong("it was not made by this API"));
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let (mut places, mut known) = (Vec::new(), Vec::new());
        for id in ids {
            let found = bytes.chunks(PLACE_BYTES).find(|place| place[..NAME_BYTES] == name(id));
            known.push(found.is_some());
            places.push(match found.map(|place| &place[NAME_BYTES..]) {
                Some(place) => {
                    let (execution, turn) = (number(&place[16..24]), number(&place[24..]));
                    let key = cursor::instance_key(&place[..16])?;
                    (execution > 0).then_some(Place { key, execution, turn })
                }
                None => None,
            });
        }
        Ok((Places(places), known))
    }
}

/// Names an instance.
fn name(id: &str) -> [u8; NAME_BYTES] {
    let digest = Sha256::digest(id.as_bytes());
    std::array::from_fn(|place| digest[place])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h28_a_cursor_names_a_place_in_every_history() {
        let ids = ["a".to_owned(), "b".to_owned()];
        let place = Place { key: InstanceKey::from_bytes([7; 16]), execution: 3, turn: 1 << 40 };
        let text = Places::encode(&ids, [Some(place), None].into_iter());
        let (places, known) = Places::decode(&ids, &text).unwrap();
        assert_eq!(places.of_instances().collect::<Vec<_>>(), [Some(place), None]);
        assert_eq!(known, [true, true]);
        // Another stream goes on with what it has in common.
        let others = ["c".to_owned(), "a".to_owned()];
        let (places, known) = Places::decode(&others, &text).unwrap();
        assert_eq!(places.of_instances().collect::<Vec<_>>(), [None, Some(place)]);
        assert_eq!(known, [false, true]);
        assert!(Places::decode(&ids, "now").is_err());
        let cut = cursor::encode(LIST, &[0; PLACE_BYTES + 1]);
        assert!(Places::decode(&ids, &cut).is_err());
    }
}
