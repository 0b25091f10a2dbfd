//! Builds the argument lists of the schema's functions.

use std::borrow::Cow;

use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::connection::Argument;

/// Optional text.
pub(crate) type Text<'c> = Option<Cow<'c, str>>;

/// Array arguments, with one method per element type. An empty array is passed as NULL: the server would spend time
/// unpacking an empty array, and a batch has many of them.
pub(crate) struct Arguments<'a>(pub(crate) Vec<Argument<'a>>);

static NO_UUIDS: Option<Vec<Uuid>> = None;
static NO_SHORTS: Option<Vec<i16>> = None;
static NO_INTS: Option<Vec<i32>> = None;
static NO_LONGS: Option<Vec<i64>> = None;
static NO_BOOLS: Option<Vec<bool>> = None;
static NO_TEXTS: Option<Vec<String>> = None;
static NO_BYTES: Option<Vec<Vec<u8>>> = None;

impl<'a> Arguments<'a> {
    fn push<T: ToSql + Sync>(
        &mut self,
        values: &'a Vec<T>,
        null: &'static (dyn ToSql + Sync),
        type_: Type,
    ) -> &mut Arguments<'a> {
        self.0.push((if values.is_empty() { null } else { values }, type_));
        self
    }

    pub(crate) fn uuids<T: ToSql + Sync>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_UUIDS, Type::UUID_ARRAY)
    }

    pub(crate) fn shorts<T: ToSql + Sync>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_SHORTS, Type::INT2_ARRAY)
    }

    pub(crate) fn ints<T: ToSql + Sync>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_INTS, Type::INT4_ARRAY)
    }

    pub(crate) fn longs<T: ToSql + Sync>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_LONGS, Type::INT8_ARRAY)
    }

    pub(crate) fn bools<T: ToSql + Sync>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_BOOLS, Type::BOOL_ARRAY)
    }

    pub(crate) fn texts<T: ToSql + Sync>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_TEXTS, Type::TEXT_ARRAY)
    }

    pub(crate) fn bytes<T: ToSql + Sync>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_BYTES, Type::BYTEA_ARRAY)
    }
}
