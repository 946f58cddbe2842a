//! Reads the exchanges of a time one by one, for queries that the sums cannot answer.

use std::time::Instant;

use records::block;

use super::ReportQuestion;
use super::calendar::Span;
use super::groups::{Groups, named};
use crate::db::engine::{Db, DbError, DbResult};
use crate::db::packed_row::PackedRow;
use crate::db::signed;
use crate::usage::requests::has_names;
use crate::usage::sums::UsageSums;

/// The exchanges of a time.
pub(super) struct Records {
    pub(super) part: Span,
    /// At this time, reading is aborted.
    pub(super) until: Instant,
}

impl Records {
    /// Adds the exchanges that started in `part`, which is in `bucket`.
    pub(super) fn add(
        &self,
        db: &Db,
        question: &ReportQuestion,
        bucket: Span,
        groups: &mut Groups,
    ) -> DbResult<()> {
        if self.part.start_ms >= self.part.end_ms {
            return Ok(());
        }
        let mut statement = db.prepare(BLOCKS)?;
        let mut blocks = statement.query([self.part.start_ms, self.part.end_ms].map(signed))?;
        while let Some(block) = blocks.next()? {
            if Instant::now() >= self.until {
                return Err(DbError::too_slow());
            }
            let row = PackedRow::read(block)?;
            if !question.marks.may_fit(&row.names) || !question.scope.may_have(&row.names) {
                continue;
            }
            for (record, trace) in block::rows(row.rows()?, &row.names).flatten() {
                let is_meant = question.marks.fit(&record) && question.scope.has(&record);
                if !self.part.contains(record.started_at_ms) || !is_meant {
                    continue;
                }
                UsageSums::of_attempts(&record, trace, |attempt, sums| {
                    if has_names(attempt, &question.filters) {
                        let names = question.group_by.iter().map(|dimension| dimension.of(attempt));
                        let names = names.map(|name| named(name.to_owned())).collect();
                        groups.add((bucket.start_ms, names), sums);
                    }
                });
            }
        }
        Ok(())
    }
}

const BLOCKS: &str = "SELECT * FROM usage WHERE last_ms >= :from AND first_ms < :to";
