//! Builds the argument lists of the schema's functions.

use std::borrow::Cow;

use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::connection::Argument;

/// Optional text.
pub(crate) type Text<'c> = Option<Cow<'c, str>>;

/// Array arguments, with one method per element type. An array without values is passed as NULL: the server would spend
/// time unpacking it, and a batch has many of them. `unnest` gives NULLs for it, as for elements that are null.
pub(crate) struct Arguments<'a>(pub(crate) Vec<Argument<'a>>);

/// An element of an array argument.
pub(crate) trait Element: ToSql + Sync {
    fn is_null(&self) -> bool {
        false
    }
}

impl Element for Uuid {}
impl Element for i16 {}
impl Element for i32 {}
impl Element for i64 {}
impl Element for bool {}
impl Element for String {}
impl Element for &str {}
impl Element for Cow<'_, str> {}
impl Element for Vec<u8> {}
impl Element for &[u8] {}

impl<T: Element> Element for Option<T> {
    fn is_null(&self) -> bool {
        self.is_none()
    }
}

static NO_UUIDS: Option<Vec<Uuid>> = None;
static NO_SHORTS: Option<Vec<i16>> = None;
static NO_INTS: Option<Vec<i32>> = None;
static NO_LONGS: Option<Vec<i64>> = None;
static NO_BOOLS: Option<Vec<bool>> = None;
static NO_TEXTS: Option<Vec<String>> = None;
static NO_BYTES: Option<Vec<Vec<u8>>> = None;

impl<'a> Arguments<'a> {
    fn push<T: Element>(
        &mut self,
        values: &'a Vec<T>,
        null: &'static (dyn ToSql + Sync),
        type_: Type,
    ) -> &mut Arguments<'a> {
        self.0.push((if values.iter().all(Element::is_null) { null } else { values }, type_));
        self
    }

    pub(crate) fn uuids<T: Element>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_UUIDS, Type::UUID_ARRAY)
    }

    pub(crate) fn shorts<T: Element>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_SHORTS, Type::INT2_ARRAY)
    }

    pub(crate) fn ints<T: Element>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_INTS, Type::INT4_ARRAY)
    }

    pub(crate) fn longs<T: Element>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_LONGS, Type::INT8_ARRAY)
    }

    pub(crate) fn bools<T: Element>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_BOOLS, Type::BOOL_ARRAY)
    }

    pub(crate) fn texts<T: Element>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_TEXTS, Type::TEXT_ARRAY)
    }

    pub(crate) fn bytes<T: Element>(&mut self, values: &'a Vec<T>) -> &mut Arguments<'a> {
        self.push(values, &NO_BYTES, Type::BYTEA_ARRAY)
    }
}
