//! Rows of `instances` as columns, and the indexed part of their attributes.

use std::borrow::Cow;

use perennial_core::Payload;
use perennial_core::store::{InstanceRow, order_key};
use uuid::Uuid;

use crate::arguments::{Arguments, Text};
use crate::row::{attributes_json, bound, exact, json, shard, status_code, storable, uuid};

/// Maximum length of the indexed part of an attribute's order key. PostgreSQL limits the size of an index entry.
pub(crate) const ORDER_KEY_BYTES: usize = 256;

/// Rows of `instances`, transposed to columns.
#[derive(Default)]
pub(crate) struct NewRows<'c> {
    pub(crate) member: Vec<i32>,
    pub(crate) send: Vec<Option<i32>>,
    pub(crate) key: Vec<Uuid>,
    pub(crate) id: Vec<Cow<'c, str>>,
    pub(crate) shard: Vec<i16>,
    pub(crate) name: Vec<Cow<'c, str>>,
    pub(crate) version: Vec<Cow<'c, str>>,
    pub(crate) status: Vec<i16>,
    pub(crate) execution: Vec<i64>,
    pub(crate) owed: Vec<bool>,
    pub(crate) wake: Vec<Option<i64>>,
    pub(crate) blocked: Vec<Text<'c>>,
    pub(crate) attributes: Vec<Text<'c>>,
    pub(crate) published: Vec<Text<'c>>,
    pub(crate) parent: Vec<Text<'c>>,
    pub(crate) created: Vec<i64>,
    pub(crate) ended: Vec<Option<i64>>,
    pub(crate) parent_key: Vec<Text<'c>>,
    pub(crate) full: Vec<bool>,
    pub(crate) checksum: Vec<i32>,
}

impl<'c> NewRows<'c> {
    /// Adds a row. The caller has [checked](check_row) it.
    pub(crate) fn add(&mut self, row: &'c InstanceRow) {
        self.key.push(uuid(row.key));
        self.id.push(Cow::Borrowed(&row.id));
        self.shard.push(shard(row.shard));
        self.name.push(Cow::Borrowed(&row.name));
        self.version.push(Cow::Borrowed(&row.version));
        self.status.push(status_code(row.status));
        self.execution.push(bound(row.execution));
        self.owed.push(row.owed);
        self.wake.push(row.wake_at_ms.map(bound));
        self.blocked.push(row.blocked.as_ref().and_then(|blocked| json(blocked).ok()).map(Cow::Owned));
        self.attributes.push(attributes_json(&row.attributes).ok().flatten().map(Cow::Owned));
        self.published.push(row.published.as_ref().map(|published| Cow::Borrowed(published.as_json())));
        self.parent.push(row.parent.as_ref().and_then(|parent| json(parent).ok()).map(Cow::Owned));
        self.created.push(bound(row.created_ms));
        self.ended.push(row.ended_ms.map(bound));
        self.parent_key.push(row.parent.as_ref().map(|parent| Cow::Borrowed(&*parent.key)));
        self.full.push(row.full);
        self.checksum.push(row.checksum.cast_signed());
    }

    /// Appends the columns after key, id and shard, in the order of the functions' parameters.
    pub(crate) fn add_arguments<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.texts(&self.name).texts(&self.version).shorts(&self.status).longs(&self.execution);
        arguments.bools(&self.owed).longs(&self.wake).texts(&self.blocked).texts(&self.attributes);
        arguments.texts(&self.published).texts(&self.parent).longs(&self.created).longs(&self.ended);
        arguments.texts(&self.parent_key).bools(&self.full).ints(&self.checksum);
    }

    pub(crate) fn into_owned<'o>(self) -> NewRows<'o> {
        let owned = |texts: Vec<Cow<'_, str>>| -> Vec<Cow<'o, str>> {
            texts.into_iter().map(|text| Cow::Owned(text.into_owned())).collect()
        };
        let maybe_owned = |texts: Vec<Text<'_>>| -> Vec<Text<'o>> {
            texts.into_iter().map(|text| text.map(|text| Cow::Owned(text.into_owned()))).collect()
        };
        NewRows {
            member: self.member,
            send: self.send,
            key: self.key,
            id: owned(self.id),
            shard: self.shard,
            name: owned(self.name),
            version: owned(self.version),
            status: self.status,
            execution: self.execution,
            owed: self.owed,
            wake: self.wake,
            blocked: maybe_owned(self.blocked),
            attributes: maybe_owned(self.attributes),
            published: maybe_owned(self.published),
            parent: maybe_owned(self.parent),
            created: self.created,
            ended: self.ended,
            parent_key: maybe_owned(self.parent_key),
            full: self.full,
            checksum: self.checksum,
        }
    }

    pub(crate) fn append(&mut self, mut other: NewRows<'c>) {
        self.member.append(&mut other.member);
        self.send.append(&mut other.send);
        self.key.append(&mut other.key);
        self.id.append(&mut other.id);
        self.shard.append(&mut other.shard);
        self.name.append(&mut other.name);
        self.version.append(&mut other.version);
        self.status.append(&mut other.status);
        self.execution.append(&mut other.execution);
        self.owed.append(&mut other.owed);
        self.wake.append(&mut other.wake);
        self.blocked.append(&mut other.blocked);
        self.attributes.append(&mut other.attributes);
        self.published.append(&mut other.published);
        self.parent.append(&mut other.parent);
        self.created.append(&mut other.created);
        self.ended.append(&mut other.ended);
        self.parent_key.append(&mut other.parent_key);
        self.full.append(&mut other.full);
        self.checksum.append(&mut other.checksum);
    }
}

/// The part of a value's order key that is indexed.
pub(crate) fn indexed_key(value: &Payload) -> Vec<u8> {
    let mut key = order_key(value);
    key.truncate(ORDER_KEY_BYTES);
    key
}

/// Checks that PostgreSQL can store every value of a row unchanged.
pub(crate) fn check_row(row: &InstanceRow) -> Result<(), String> {
    storable(&row.id)?;
    storable(&row.name)?;
    storable(&row.version)?;
    exact(row.execution)?;
    exact(row.created_ms)?;
    row.ended_ms.map(exact).transpose()?;
    if let Some(parent) = &row.parent {
        storable(&parent.key)?;
        json(parent)?;
    }
    row.blocked.as_ref().map(json).transpose()?;
    attributes_json(&row.attributes)?;
    row.attributes.keys().try_for_each(|name| storable(name).map(drop))
}
