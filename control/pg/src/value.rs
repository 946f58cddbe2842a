//! The values that statements are given and that rows consist of.

use std::error::Error as StdError;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::error::{Error, ErrorKind};

/// A value of a parameter or of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    /// No value.
    Null,
    /// A whole number; also a truth value, 0 or 1.
    Integer(i64),
    /// A fraction.
    Real(f64),
    /// A text.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `BIGINT`
    Integer,
    /// `DOUBLE PRECISION`
    Real,
    /// `TEXT`
    Text,
    /// `BYTEA`
    Blob,
}

/// A row that a statement found.
#[derive(Debug)]
pub struct Row(pub(crate) tokio_postgres::Row);

impl Kind {
    pub(crate) fn type_of(self) -> Type {
        match self {
            Self::Integer => Type::INT8,
            Self::Real => Type::FLOAT8,
            Self::Text => Type::TEXT,
            Self::Blob => Type::BYTEA,
        }
    }
}

impl Field<'_> {
    /// Returns the type that a parameter has for this value; a value that is absent has none.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        match self {
            Self::Null => None,
            Self::Integer(_) => Some(Kind::Integer),
            Self::Real(_) => Some(Kind::Real),
            Self::Text(_) => Some(Kind::Text),
            Self::Blob(_) => Some(Kind::Blob),
        }
    }
}

impl Row {
    /// Returns the name of a column, counted from 0.
    #[must_use]
    pub fn name(&self, column: usize) -> Option<&str> {
        self.0.columns().get(column).map(tokio_postgres::Column::name)
    }

    /// Returns the position of a column, counted from 0.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.columns().iter().position(|column| column.name() == name)
    }

    /// Returns the value of a column; the first one is 0. Fails if there is no such column, or if [`Field`] has no form for its type.
    pub fn get(&self, column: usize) -> Result<Field<'_>, Error> {
        Ok(self.0.try_get::<_, Option<Field<'_>>>(column)?.unwrap_or(Field::Null))
    }
}

impl ToSql for Field<'_> {
    fn to_sql(&self, to: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) => number.to_sql(to, out),
            Self::Real(number) => number.to_sql(to, out),
            Self::Text(text) if text.contains('\0') => {
                Err("PostgreSQL cannot store a text with the character U+0000".into())
            }
            Self::Text(text) => text.to_sql(to, out),
            Self::Blob(bytes) => bytes.to_sql(to, out),
        }
    }

    fn accepts(to: &Type) -> bool {
        [Type::INT8, Type::FLOAT8, Type::TEXT, Type::BYTEA].contains(to)
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Field<'a> {
    fn from_sql(from: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(match *from {
            Type::BOOL => Self::Integer(bool::from_sql(from, raw)?.into()),
            Type::INT2 => Self::Integer(i16::from_sql(from, raw)?.into()),
            Type::INT4 => Self::Integer(i32::from_sql(from, raw)?.into()),
            Type::INT8 => Self::Integer(i64::from_sql(from, raw)?),
            Type::FLOAT4 => Self::Real(f32::from_sql(from, raw)?.into()),
            Type::FLOAT8 => Self::Real(f64::from_sql(from, raw)?),
            Type::BYTEA => Self::Blob(raw),
            _ => Self::Text(<&str>::from_sql(from, raw)?),
        })
    }

    fn accepts(from: &Type) -> bool {
        let numbers =
            [Type::BOOL, Type::INT2, Type::INT4, Type::INT8, Type::FLOAT4, Type::FLOAT8, Type::BYTEA];
        numbers.contains(from) || <&str as FromSql<'_>>::accepts(from)
    }
}

/// The error of parameters that do not match their statement.
pub(crate) fn wrong_count(expected: usize, given: usize) -> Error {
    Error::new(
        ErrorKind::BadValue,
        format!("a statement with {expected} parameters was given {given} values"),
    )
}
