//! The text of a portable statement as PostgreSQL takes it: numbers instead of names, and `NULL` for a value that is absent,
//! since a parameter without a value would have no type.

use pg::{Field, Kind};

use crate::db::engine::{DbError, DbResult, Place};

/// A portable statement, cut at its parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Text {
    /// The texts before, between and behind the parameters.
    pieces: Vec<Box<str>>,
    /// Between each two pieces, which parameter stands there, counted from 0.
    places: Vec<usize>,
    /// The names of the parameters with their colons, in the order in which they first stand in the statement.
    names: Vec<Box<str>>,
}

impl Text {
    /// Finds the parameters of a statement. Quoted texts and names have none.
    pub(super) fn parse(sql: &str) -> Self {
        let mut text = Self { pieces: Vec::new(), places: Vec::new(), names: Vec::new() };
        let (mut piece, mut rest) = (String::new(), sql);
        while let Some(at) = rest.find(['\'', '"', ':']) {
            let (before, from) = rest.split_at(at);
            piece.push_str(before);
            let length = match from.chars().next() {
                Some(quote @ ('\'' | '"')) => {
                    from.get(1..).and_then(|inside| inside.find(quote)).map_or(from.len(), |end| end + 2)
                }
                _ => 1 + from.get(1..).map_or(0, name_length),
            };
            let (token, behind) = from.split_at(length);
            if token.starts_with(':') && token.len() > 1 {
                let number = text.number_of(token);
                text.places.push(number);
                text.pieces.push(std::mem::take(&mut piece).into());
            } else {
                piece.push_str(token);
            }
            rest = behind;
        }
        piece.push_str(rest);
        text.pieces.push(piece.into());
        text
    }

    fn number_of(&mut self, name: &str) -> usize {
        self.names.iter().position(|known| **known == *name).unwrap_or_else(|| {
            self.names.push(name.into());
            self.names.len() - 1
        })
    }

    /// True if the statement reads.
    pub(super) fn is_select(&self) -> bool {
        self.pieces.first().is_some_and(|piece| piece.starts_with("SELECT "))
    }

    /// Returns the number of parameters.
    pub(super) fn parameters(&self) -> usize {
        self.names.len()
    }

    /// Returns which parameter stands at a place, counted from 0.
    pub(super) fn parameter(&self, place: Place<'_>) -> DbResult<usize> {
        let number = match place {
            Place::At(at) => at.checked_sub(1).filter(|number| *number < self.names.len()),
            Place::Named(name) => self.names.iter().position(|known| **known == *name),
        };
        number.ok_or_else(|| DbError::no_parameter(place))
    }

    /// Returns the text for these values, which are those of all parameters, with the types and values of those that stand in it.
    pub(super) fn with<'a>(&self, values: &[Field<'a>]) -> (String, Vec<Kind>, Vec<Field<'a>>) {
        let (mut kinds, mut present) = (Vec::new(), Vec::new());
        let written: Vec<String> = values
            .iter()
            .map(|value| match value.kind() {
                None => "NULL".to_owned(),
                Some(kind) => {
                    kinds.push(kind);
                    present.push(*value);
                    format!("${}", present.len())
                }
            })
            .collect();
        let mut sql = String::new();
        let mut places = self.places.iter();
        for piece in &self.pieces {
            sql.push_str(piece);
            sql.push_str(places.next().and_then(|number| written.get(*number)).map_or("", String::as_str));
        }
        (sql, kinds, present)
    }
}

/// Returns the length of the name with which a text begins, or 0.
fn name_length(text: &str) -> usize {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.find(|letter| !is_name(letter)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_the_numbers_of_their_first_places() {
        let text =
            Text::parse("SELECT ':no', \":no\" FROM t WHERE a = :b AND (:a IS NULL OR c = :a) AND d = :b");
        assert_eq!(text.parameters(), 2);
        assert_eq!(text.parameter(Place::Named(":a")), Ok(1));
        assert_eq!(text.parameter(Place::At(1)), Ok(0));
        assert!(text.parameter(Place::At(3)).is_err() && text.parameter(Place::Named(":c")).is_err());
        let (sql, kinds, values) = text.with(&[Field::Integer(7), Field::Text("x")]);
        assert_eq!(sql, "SELECT ':no', \":no\" FROM t WHERE a = $1 AND ($2 IS NULL OR c = $2) AND d = $1");
        assert_eq!(
            (kinds, values),
            (vec![Kind::Integer, Kind::Text], vec![Field::Integer(7), Field::Text("x")])
        );
    }

    #[test]
    fn an_absent_value_is_written_into_the_text() {
        let text = Text::parse("UPDATE t SET a = :a, b = :b");
        let (sql, kinds, values) = text.with(&[Field::Null, Field::Real(0.5)]);
        assert_eq!(sql, "UPDATE t SET a = NULL, b = $1");
        assert_eq!((kinds, values), (vec![Kind::Real], vec![Field::Real(0.5)]));
    }

    #[test]
    fn quotes_and_colons_that_are_no_parameters_stay() {
        for sql in ["SELECT 'it''s :a'", "SELECT a::text", "SELECT 'open", "SELECT 1 -- : ", ""] {
            let expected = if sql.contains("::") { 1 } else { 0 };
            assert_eq!(Text::parse(sql).parameters(), expected, "{sql}");
        }
    }
}
