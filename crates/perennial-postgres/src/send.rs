//! Sends messages from processes other than the owner. Those of one process share transactions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use perennial_core::store::memory::MAX_UNREAD;
use perennial_core::store::{Changes, InstanceRow, SendOutcome, SendRequest, Status, StoreError};
use perennial_core::{Attributes, InstanceKey, ShardId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::arguments::Arguments;
use crate::failure::{Access, CallError};
use crate::gather::{Bounds, Gather, Size};
use crate::new_rows::{NewRows, check_row, indexed_key};
use crate::row::{column, number, read_instance, storable, uuid};
use crate::store::Inner;

const SEND: &str = "SELECT * FROM @.send_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
     $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)";

/// Upper bounds on the number of unread messages of instances, so that few sends have to count them. Other processes
/// send too, so a bound is valid only for a short time.
#[derive(Default)]
pub(crate) struct Unread {
    bounds: Mutex<HashMap<String, (u64, Instant)>>,
}

/// Maximum number of bounds that are kept.
const MAX_BOUNDS: usize = 4_096;
const BOUND_LIFETIME: Duration = Duration::from_secs(1);

/// Approximate size of a message's row, or of the row of an instance, without the message.
const ROW_BYTES: usize = 300;

impl Unread {
    /// Returns whether the server has to count the instance's messages. If not, the message about to be sent is added
    /// to the bound.
    fn must_count(&self, id: &str) -> bool {
        let mut bounds = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        let bound = bounds.get_mut(id);
        match bound.filter(|(_, counted)| counted.elapsed() < BOUND_LIFETIME) {
            Some((bound, _)) if *bound < MAX_UNREAD as u64 => {
                *bound += 1;
                false
            }
            _ => true,
        }
    }

    fn counted(&self, id: &str, rows: u64) {
        let mut bounds = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        if bounds.len() >= MAX_BOUNDS {
            bounds.clear();
        }
        bounds.insert(id.to_owned(), (rows, Instant::now()));
    }
}

#[derive(Default)]
struct Requests<'r> {
    kind: Vec<i16>,
    id: Vec<Cow<'r, str>>,
    key: Vec<Option<Uuid>>,
    dedupe: Vec<Option<&'r str>>,
    urgent: Vec<bool>,
    counts: Vec<bool>,
    body: Vec<&'r [u8]>,
    rows: NewRows<'r>,
    attributes: (Vec<i32>, Vec<&'r str>, Vec<Vec<u8>>),
}

/// Sends of a process that wait for the one in progress, each with the requests of one call.
pub(crate) type Sends = Gather<Vec<SendRequest>, Vec<SendOutcome>>;

/// Upper bounds on what calls send in one transaction. Others wait for its locks.
pub(crate) const BOUNDS: Bounds = Bounds { turns: 2, rows: 1_000, bytes: 4 << 20 };

pub(crate) async fn send(inner: &Inner, requests: Vec<SendRequest>) -> Result<Vec<SendOutcome>, StoreError> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    requests.iter().try_for_each(check).map_err(StoreError::BatchRefused)?;
    let bytes: usize = requests.iter().map(|request| ROW_BYTES + body_of(request).len()).sum();
    let size = Size { rows: requests.len(), bytes: bytes as u64 };
    inner.sends.call(requests, size, |calls| send_together(inner, calls)).await
}

/// Sends the requests of several calls in one transaction. If the server refuses something, each call is sent on its own,
/// so that it fails alone.
async fn send_together(
    inner: &Inner,
    calls: Vec<Vec<SendRequest>>,
) -> Vec<Result<Vec<SendOutcome>, StoreError>> {
    let requests: Vec<&SendRequest> = calls.iter().flatten().collect();
    match write(inner, &requests).await {
        Ok(outcomes) => {
            let mut outcomes = outcomes.into_iter();
            calls.iter().map(|call| outcomes.by_ref().take(call.len()).collect()).collect()
        }
        Err(StoreError::BatchRefused(_)) if calls.len() > 1 => {
            let mut outcomes = Vec::with_capacity(calls.len());
            for call in &calls {
                let requests: Vec<&SendRequest> = call.iter().collect();
                let written = write(inner, &requests).await;
                outcomes.push(written.and_then(|outcomes| outcomes.into_iter().collect()));
            }
            outcomes
        }
        Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
    }
}

/// Writes requests in one transaction. Returns the outcome of each.
async fn write(
    inner: &Inner,
    requests: &[&SendRequest],
) -> Result<Vec<Result<SendOutcome, StoreError>>, StoreError> {
    // Sorted by id, so that two calls for the same instances lock them in the same order. The sort is stable: messages
    // to one instance keep their order.
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|place| id_of(requests[*place]));
    let filler = filler();
    let mut arrays = Requests::default();
    for (request, position) in order.iter().map(|place| requests[*place]).zip(1..) {
        arrays.add(request, position, &filler, &inner.unread);
    }
    let places: Vec<i32> = order.iter().map(|place| i32::try_from(*place + 1).unwrap_or(i32::MAX)).collect();
    let (at, most) = (inner.at(), MAX_UNREAD as i64);
    let mut arguments = Arguments(vec![(&at, Type::INT8), (&most, Type::INT8)]);
    arguments.ints(&places).shorts(&arrays.kind).texts(&arrays.id).uuids(&arrays.key).texts(&arrays.dedupe);
    arguments.bools(&arrays.urgent).bools(&arrays.counts).bytes(&arrays.body).shorts(&arrays.rows.shard);
    arrays.rows.add_arguments(&mut arguments);
    arguments.ints(&arrays.attributes.0).texts(&arrays.attributes.1).bytes(&arrays.attributes.2);
    let rows = inner.call(SEND, &arguments.0, Access::Writes).await.map_err(CallError::into_error)?;
    let missing = || Err(StoreError::CorruptRow("a message was sent without an outcome".to_owned()));
    let mut outcomes: Vec<_> = requests.iter().map(|_| missing()).collect();
    let mut changes = Changes::default();
    for row in &rows {
        let position: i32 = column(row, 0)?;
        let place = usize::try_from(position).ok().and_then(|position| position.checked_sub(1));
        let Some(place) = place.and_then(|place| order.get(place)).copied() else { continue };
        let id = id_of(requests[place]);
        outcomes[place] = outcome(inner, id, row);
        if matches!(outcomes[place], Ok(SendOutcome::Sent(_) | SendOutcome::Duplicate(_))) {
            changes.inbox.insert(ShardId::of(id));
        }
    }
    inner.hints.notify(&changes);
    Ok(outcomes)
}

/// Checks that PostgreSQL can store every value of a request unchanged.
fn check(request: &SendRequest) -> Result<(), String> {
    match request {
        SendRequest::Start { row, .. } => check_row(row),
        SendRequest::Message { dedupe, .. } => storable(dedupe.as_deref().unwrap_or_default()).map(drop),
    }
}

fn body_of(request: &SendRequest) -> &[u8] {
    match request {
        SendRequest::Start { body, .. } | SendRequest::Message { body, .. } => body,
    }
}

fn id_of(request: &SendRequest) -> &str {
    match request {
        SendRequest::Start { row, .. } => &row.id,
        SendRequest::Message { id, .. } => id,
    }
}

fn outcome(inner: &Inner, id: &str, row: &Row) -> Result<SendOutcome, StoreError> {
    let (code, value): (i16, Option<i64>) = (column(row, 1)?, column(row, 2)?);
    let value = value.map(number).transpose()?.unwrap_or(0);
    if let Some(unread) = column::<Option<i64>>(row, 3)?.map(number).transpose()? {
        inner.unread.counted(id, unread + u64::from(code == 0));
    }
    Ok(match code {
        0 => SendOutcome::Sent(value),
        1 => SendOutcome::Duplicate(value),
        2 => SendOutcome::IdTaken(Box::new(read_instance(row, 4)?)),
        3 => SendOutcome::NoInstance,
        4 => SendOutcome::Ended(Box::new(read_instance(row, 4)?)),
        5 => SendOutcome::Full(usize::try_from(value).unwrap_or(usize::MAX)),
        _ => return Err(StoreError::CorruptRow("the key of a start belongs to another instance".to_owned())),
    })
}

impl<'r> Requests<'r> {
    /// Adds a request, which was [checked](check).
    fn add(&mut self, request: &'r SendRequest, position: i32, filler: &'r InstanceRow, unread: &Unread) {
        match request {
            SendRequest::Start { row, body } => {
                self.kind.push(0);
                self.key.push(Some(uuid(row.key)));
                self.dedupe.push(None);
                self.urgent.push(false);
                self.counts.push(false);
                self.body.push(body);
                self.rows.add(row);
                for (name, value) in &row.attributes {
                    self.attributes.0.push(position);
                    self.attributes.1.push(name);
                    self.attributes.2.push(indexed_key(value));
                }
            }
            SendRequest::Message { key, dedupe, urgent, body, .. } => {
                self.kind.push(1);
                self.key.push(key.map(uuid));
                self.dedupe.push(dedupe.as_deref());
                self.urgent.push(*urgent);
                self.counts.push(unread.must_count(id_of(request)));
                self.body.push(body);
                self.rows.add(filler);
            }
        }
        // No instance can have an id that cannot be stored.
        self.id.push(Cow::Borrowed(storable(id_of(request)).unwrap_or_default()));
    }
}

/// A placeholder for requests that start no instance.
fn filler() -> InstanceRow {
    InstanceRow {
        key: InstanceKey::from_bytes([0; 16]),
        id: String::new(),
        shard: ShardId(0),
        name: String::new(),
        version: String::new(),
        status: Status::Pending,
        execution: 1,
        owed: false,
        wake_at_ms: None,
        blocked: None,
        full: false,
        attributes: Attributes::default(),
        published: None,
        parent: None,
        created_ms: 0,
        ended_ms: None,
        checksum: 0,
    }
}
