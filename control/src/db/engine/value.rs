//! The values that statements are given and that rows consist of.

use std::borrow::Cow;
use std::sync::Arc;

use super::{DbError, DbResult};

/// A value of the database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'a str),
    Blob(&'a [u8]),
}

/// A type whose values can be stored.
pub(crate) trait ToValue {
    /// Returns the value, or an error if it cannot be stored.
    fn to_value(&self) -> DbResult<Value<'_>>;
}

/// A type that can be read from a stored value.
pub(crate) trait FromValue<'a>: Sized {
    /// Returns what the value stands for.
    fn from_value(value: Value<'a>) -> Result<Self, Mismatch>;
}

/// A value has another type or form than its reader expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch;

/// A parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// Counted from 1, in the order in which the parameters first stand in the statement.
    At(usize),
    /// By its name, with the colon.
    Named(&'a str),
}

/// The values for all parameters of a statement: `()`, an array, vector, slice or tuple in the order in which the parameters
/// first stand in the statement, or [`named_params`].
pub(crate) trait Values {
    /// Calls `bind` with each value.
    fn each(self, bind: &mut dyn FnMut(Place<'_>, Value<'_>) -> DbResult<()>) -> DbResult<()>;
}

/// A column of a row, by its name or its position from 0.
pub(crate) trait Column: Copy {
    /// Returns the position. `by_name` looks a name up.
    fn position(self, by_name: impl FnOnce(&str) -> DbResult<usize>) -> DbResult<usize>;
}

impl Column for usize {
    fn position(self, _: impl FnOnce(&str) -> DbResult<usize>) -> DbResult<usize> {
        Ok(self)
    }
}

impl Column for &str {
    fn position(self, by_name: impl FnOnce(&str) -> DbResult<usize>) -> DbResult<usize> {
        by_name(self)
    }
}

/// Values by the names of the parameters: `named_params! {":id": id, ":now": now_ms}`.
macro_rules! named_params {
    ($($name:literal: $value:expr),* $(,)?) => {
        &[$(($name, &$value as &dyn $crate::db::engine::ToValue)),*] as &[(&str, &dyn $crate::db::engine::ToValue)]
    };
}
pub(crate) use named_params;

impl Values for () {
    fn each(self, _: &mut dyn FnMut(Place<'_>, Value<'_>) -> DbResult<()>) -> DbResult<()> {
        Ok(())
    }
}

impl Values for &[(&str, &dyn ToValue)] {
    fn each(self, bind: &mut dyn FnMut(Place<'_>, Value<'_>) -> DbResult<()>) -> DbResult<()> {
        self.iter().try_for_each(|(name, value)| bind(Place::Named(name), value.to_value()?))
    }
}

impl<T: ToValue> Values for &[T] {
    fn each(self, bind: &mut dyn FnMut(Place<'_>, Value<'_>) -> DbResult<()>) -> DbResult<()> {
        (1..).zip(self).try_for_each(|(at, value)| bind(Place::At(at), value.to_value()?))
    }
}

impl<T: ToValue> Values for Vec<T> {
    fn each(self, bind: &mut dyn FnMut(Place<'_>, Value<'_>) -> DbResult<()>) -> DbResult<()> {
        self.as_slice().each(bind)
    }
}

impl<T: ToValue, const N: usize> Values for [T; N] {
    fn each(self, bind: &mut dyn FnMut(Place<'_>, Value<'_>) -> DbResult<()>) -> DbResult<()> {
        self.as_slice().each(bind)
    }
}

macro_rules! values_of_tuple {
    ($(($($each:ident $at:literal $place:tt),+))+) => {$(
        impl<$($each: ToValue),+> Values for ($($each,)+) {
            fn each(self, bind: &mut dyn FnMut(Place<'_>, Value<'_>) -> DbResult<()>) -> DbResult<()> {
                $(bind(Place::At($at), self.$place.to_value()?)?;)+
                Ok(())
            }
        }
    )+};
}

values_of_tuple! {
    (A 1 0, B 2 1)
    (A 1 0, B 2 1, C 3 2)
    (A 1 0, B 2 1, C 3 2, D 4 3)
    (A 1 0, B 2 1, C 3 2, D 4 3, E 5 4)
    (A 1 0, B 2 1, C 3 2, D 4 3, E 5 4, F 6 5)
    (A 1 0, B 2 1, C 3 2, D 4 3, E 5 4, F 6 5, G 7 6, H 8 7)
}

impl ToValue for Value<'_> {
    fn to_value(&self) -> DbResult<Value<'_>> {
        Ok(*self)
    }
}

impl<T: ToValue + ?Sized> ToValue for &T {
    fn to_value(&self) -> DbResult<Value<'_>> {
        (**self).to_value()
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self) -> DbResult<Value<'_>> {
        self.as_ref().map_or(Ok(Value::Null), T::to_value)
    }
}

impl ToValue for bool {
    fn to_value(&self) -> DbResult<Value<'_>> {
        Ok(Value::Integer((*self).into()))
    }
}

impl ToValue for f64 {
    fn to_value(&self) -> DbResult<Value<'_>> {
        Ok(Value::Real(*self))
    }
}

impl ToValue for str {
    fn to_value(&self) -> DbResult<Value<'_>> {
        Ok(Value::Text(self))
    }
}

impl ToValue for [u8] {
    fn to_value(&self) -> DbResult<Value<'_>> {
        Ok(Value::Blob(self))
    }
}

impl<const N: usize> ToValue for [u8; N] {
    fn to_value(&self) -> DbResult<Value<'_>> {
        Ok(Value::Blob(self))
    }
}

macro_rules! integers {
    ($($integer:ty),+) => {$(
        impl ToValue for $integer {
            fn to_value(&self) -> DbResult<Value<'_>> {
                i64::try_from(*self).map(Value::Integer).map_err(DbError::bad_value)
            }
        }

        impl FromValue<'_> for $integer {
            fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
                match value {
                    Value::Integer(number) => number.try_into().map_err(|_| Mismatch),
                    Value::Null | Value::Real(_) | Value::Text(_) | Value::Blob(_) => Err(Mismatch),
                }
            }
        }
    )+};
}

integers!(i64, i32, u64, u32, u16, u8, usize);

macro_rules! stored_as {
    ($($owned:ty),+) => {$(
        impl ToValue for $owned {
            fn to_value(&self) -> DbResult<Value<'_>> {
                (**self).to_value()
            }
        }
    )+};
}

stored_as!(String, Box<str>, Arc<str>, Cow<'_, str>, Vec<u8>);

impl<'a> FromValue<'a> for Value<'a> {
    fn from_value(value: Value<'a>) -> Result<Self, Mismatch> {
        Ok(value)
    }
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    fn from_value(value: Value<'a>) -> Result<Self, Mismatch> {
        if value == Value::Null { Ok(None) } else { T::from_value(value).map(Some) }
    }
}

impl FromValue<'_> for bool {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        i64::from_value(value).map(|number| number != 0)
    }
}

impl FromValue<'_> for f64 {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        match value {
            Value::Real(number) => Ok(number),
            #[expect(
                clippy::cast_precision_loss,
                reason = "a number that is read as a fraction may be rounded"
            )]
            Value::Integer(number) => Ok(number as Self),
            Value::Null | Value::Text(_) | Value::Blob(_) => Err(Mismatch),
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    fn from_value(value: Value<'a>) -> Result<Self, Mismatch> {
        match value {
            Value::Text(text) => Ok(text),
            Value::Null | Value::Integer(_) | Value::Real(_) | Value::Blob(_) => Err(Mismatch),
        }
    }
}

impl<'a> FromValue<'a> for &'a [u8] {
    fn from_value(value: Value<'a>) -> Result<Self, Mismatch> {
        match value {
            Value::Blob(bytes) => Ok(bytes),
            Value::Null | Value::Integer(_) | Value::Real(_) | Value::Text(_) => Err(Mismatch),
        }
    }
}

impl FromValue<'_> for String {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        <&str>::from_value(value).map(str::to_owned)
    }
}

impl FromValue<'_> for Box<str> {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        <&str>::from_value(value).map(Self::from)
    }
}

impl FromValue<'_> for Arc<str> {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        <&str>::from_value(value).map(Self::from)
    }
}

impl FromValue<'_> for Vec<u8> {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        <&[u8]>::from_value(value).map(<[u8]>::to_vec)
    }
}

impl<const N: usize> FromValue<'_> for [u8; N] {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        <&[u8]>::from_value(value)?.try_into().map_err(|_| Mismatch)
    }
}
