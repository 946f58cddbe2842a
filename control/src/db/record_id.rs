//! The numbers of the rows of `usage`. Each node counts its own rows, so that no two nodes use one number:
//! `usage.id` is `node << 40 | n`. A gateway with its own database is node 0, whose ids are plain numbers.

use std::fmt;

use super::engine::{Db, DbError, DbResult, FromValue, Mismatch, ToValue, Value};

/// A process with a journal of its own, among those that share a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(u32);

/// The id of a row of `usage`. The ids of a node are in the order in which it began the rows; the numbers begin with 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RecordId {
    node: NodeId,
    n: u64,
}

impl NodeId {
    /// The only node of a database that one process uses. In a database of several it has the sums of nodes that have left.
    pub(crate) const FIRST: Self = Self(0);

    /// Returns the node with this number.
    pub(crate) const fn new(node: u32) -> Self {
        Self(node)
    }

    /// Returns the number.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Returns the node whose rows `db` writes.
    pub(crate) fn of(db: &Db) -> Self {
        Self(db.node())
    }
}

impl RecordId {
    /// Returns the id that precedes those of all rows of `node`.
    pub(crate) const fn before(node: NodeId) -> Self {
        Self { node, n: 0 }
    }

    /// Returns the first id after those of all rows of `node`.
    pub(crate) const fn end_of(node: NodeId) -> Self {
        Self::before(NodeId(node.0 + 1))
    }

    pub(crate) fn node(self) -> NodeId {
        self.node
    }

    /// Returns the id of the node's next row.
    pub(crate) fn next(self) -> Self {
        Self { n: self.n + 1, ..self }
    }

    /// Returns the id of the node's row this many rows later.
    pub(crate) fn later(self, rows: u32) -> Self {
        Self { n: self.n + u64::from(rows), ..self }
    }

    /// Returns how many rows this one is later than `first`; `None` if it is earlier, or of another node.
    pub(crate) fn distance_from(self, first: Self) -> Option<u64> {
        if self.node == first.node { self.n.checked_sub(first.n) } else { None }
    }

    /// Returns the stored number.
    pub(crate) fn stored(self) -> DbResult<i64> {
        let number = u64::from(self.node.0) << NUMBER_BITS | self.n;
        let is_valid = self.n < 1 << NUMBER_BITS;
        let stored = i64::try_from(number).ok().filter(|_| is_valid);
        stored.ok_or_else(|| DbError::bad_value(format_args!("the row id {self:?} is too large")))
    }

    /// Returns the id with this stored number; `None` if no row can have it.
    pub(crate) fn of_stored(number: i64) -> Option<Self> {
        let number = u64::try_from(number).ok()?;
        let node = NodeId(u32::try_from(number >> NUMBER_BITS).ok()?);
        Some(Self { node, n: number & NUMBER })
    }

    /// Returns the id of a row of this node.
    #[cfg(test)]
    pub(crate) fn here(n: u64) -> Self {
        Self { node: NodeId::FIRST, n }
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stored() {
            Ok(number) => number.fmt(to),
            Err(_) => write!(to, "{}/{}", self.node.0, self.n),
        }
    }
}

impl ToValue for RecordId {
    fn to_value(&self) -> DbResult<Value<'_>> {
        self.stored().map(Value::Integer)
    }
}

impl FromValue<'_> for RecordId {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        Self::of_stored(i64::from_value(value)?).ok_or(Mismatch)
    }
}

impl ToValue for NodeId {
    fn to_value(&self) -> DbResult<Value<'_>> {
        Ok(Value::Integer(self.0.into()))
    }
}

impl FromValue<'_> for NodeId {
    fn from_value(value: Value<'_>) -> Result<Self, Mismatch> {
        u32::from_value(value).map(Self)
    }
}

/// Bits of a row's number among those of its node: enough for 200 years of 170 rows a second.
const NUMBER_BITS: u32 = 40;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_node_follow_each_other_and_those_of_node_0_are_plain_numbers() {
        assert_eq!(RecordId::before(NodeId::FIRST).next().stored(), Ok(1));
        let first = RecordId::before(NodeId::new(3)).next();
        assert_eq!(first.stored(), Ok((3 << 40) + 1));
        assert_eq!(RecordId::of_stored((3 << 40) + 1), Some(first));
        assert_eq!(first.later(6).distance_from(first), Some(6));
        assert_eq!(first.distance_from(RecordId::here(1)), None, "another node");
        assert_eq!(RecordId::of_stored(-1), None);
    }

    #[test]
    fn a_node_never_uses_the_number_of_another_one() {
        let last = RecordId { node: NodeId::FIRST, n: NUMBER };
        assert!(last.stored().is_ok());
        assert!(last.next().stored().is_err(), "it would be the first of node 1");
        assert!(last < RecordId::end_of(NodeId::FIRST));
    }
}
