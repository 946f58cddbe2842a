-- The same of the tables of usage where they are in `usage.db`; in `gateway.db` it has no rows.
CREATE TABLE usage_row_sums (
    name TEXT NOT NULL PRIMARY KEY,
    sum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
