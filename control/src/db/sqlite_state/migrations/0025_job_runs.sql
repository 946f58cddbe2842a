-- The last run of each periodic job that has ended. `error` is NULL after a success.
CREATE TABLE job_runs (
    job TEXT NOT NULL PRIMARY KEY,
    started_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER NOT NULL,
    error TEXT
) STRICT, WITHOUT ROWID;
