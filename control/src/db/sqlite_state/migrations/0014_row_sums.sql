-- The sums of the rows of each table of this file, as the gateway has written them (db/row_sums.rs). Without any row
-- they are computed by the next start.
CREATE TABLE row_sums (
    name TEXT NOT NULL PRIMARY KEY,
    sum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
