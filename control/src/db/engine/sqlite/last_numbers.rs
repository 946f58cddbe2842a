//! The last numbers that SQLite has given to rows of tables with `AUTOINCREMENT`: they are not given again.

use crate::db::engine::{Db, DbResult};

/// Returns the last number of each table that has had rows.
pub(crate) fn read(db: &Db) -> DbResult<Vec<(String, i64)>> {
    db.rows(ALL, (), |row| Ok((row.get("name")?, row.get("seq")?)))
}

/// Lets the tables go on behind these numbers. Numbers of other tables are ignored.
pub(crate) fn write(tx: &Db, numbers: &[(String, i64)]) -> DbResult<()> {
    let known: Vec<(String, i64)> = read(tx)?;
    for (table, number) in numbers {
        if !tx.exists(IS_NUMBERED, [table])? {
            continue;
        }
        match known.iter().find(|(name, _)| name == table) {
            Some((_, last)) if last >= number => {}
            Some(_) => drop(tx.execute(SET, (number, table))?),
            None => drop(tx.execute(BEGIN, (table, number))?),
        }
    }
    Ok(())
}

const ALL: &str = "SELECT name, seq FROM main.sqlite_sequence";
const IS_NUMBERED: &str = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = :name AND instr(sql, 'AUTOINCREMENT') > 0";
const SET: &str = "UPDATE main.sqlite_sequence SET seq = :seq WHERE name = :name";
const BEGIN: &str = "INSERT INTO main.sqlite_sequence (name, seq) VALUES (:name, :seq)";
