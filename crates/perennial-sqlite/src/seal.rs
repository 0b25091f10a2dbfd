//! Checksums of messages, tasks, requests and replies.
//!
//! Bodies have their own checksums, which the engine verifies. These also cover the other columns, so that a row that
//! was changed, or assigned to another instance, is not mistaken for what was sent. Rows of an older schema have none,
//! and are accepted as they are.

use perennial_core::store::StoreError;
use rusqlite::types::ValueRef;
use rusqlite::{Row, ToSql, types::ToSqlOutput};

/// A checksum over a sequence of values.
#[derive(Default)]
pub(crate) struct Seal(crc32fast::Hasher);

impl Seal {
    pub(crate) fn of(values: &[&dyn ToSql]) -> rusqlite::Result<i64> {
        let mut seal = Seal::default();
        for value in values {
            match value.to_sql()? {
                ToSqlOutput::Borrowed(value) => seal.add(value),
                ToSqlOutput::Owned(value) => seal.add(ValueRef::from(&value)),
                _ => return Err(rusqlite::Error::ToSqlConversionFailure("a value without bytes".into())),
            }
        }
        Ok(seal.finish())
    }

    /// The checksum of a row's first columns.
    pub(crate) fn of_row(row: &Row<'_>, columns: usize) -> rusqlite::Result<i64> {
        let mut seal = Seal::default();
        for column in 0..columns {
            seal.add(row.get_ref(column)?);
        }
        Ok(seal.finish())
    }

    /// With a prefix of type and length, moving bytes from one value to the next changes the checksum.
    fn add(&mut self, value: ValueRef<'_>) {
        let mut bytes = |kind: u8, bytes: &[u8]| {
            self.0.update(&[kind]);
            self.0.update(&(bytes.len() as u64).to_le_bytes());
            self.0.update(bytes);
        };
        match value {
            ValueRef::Null => bytes(0, &[]),
            ValueRef::Integer(number) => bytes(1, &number.to_le_bytes()),
            ValueRef::Real(number) => bytes(2, &number.to_le_bytes()),
            ValueRef::Text(text) => bytes(3, text),
            ValueRef::Blob(blob) => bytes(4, blob),
        }
    }

    fn finish(self) -> i64 {
        i64::from(self.0.finalize())
    }
}

/// Verifies a row whose first columns are covered by the checksum in the column after them.
pub(crate) fn check(row: &Row<'_>, columns: usize) -> Result<(), StoreError> {
    let corrupt = |why: String| StoreError::CorruptRow(why);
    let sealed: Option<i64> = row.get(columns).map_err(|error| corrupt(error.to_string()))?;
    let seal = Seal::of_row(row, columns).map_err(|error| corrupt(error.to_string()))?;
    match sealed.is_none_or(|sealed| sealed == seal) {
        true => Ok(()),
        false => Err(corrupt("its checksum does not match: it was changed".to_owned())),
    }
}
