-- Runs of the request index know their day, and each is one of a node. `day` (since the Unix epoch) is that of the newest
-- exchange in the rows of the run: look-ups read the newest day first. `usage_indexed` has, for each node, the last row of
-- `usage` that is in a run, and the run that is being written.
CREATE TABLE usage_indexed (
    node INTEGER NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL,
    draft_day INTEGER,
    draft_last INTEGER
) STRICT;

INSERT INTO usage_indexed (node, last)
SELECT 0, last FROM usage_requests WHERE bucket = 0 ORDER BY last DESC LIMIT 1;

CREATE TABLE usage_run_days (
    last INTEGER NOT NULL PRIMARY KEY,
    day INTEGER NOT NULL
) STRICT;

INSERT INTO usage_run_days (last, day)
SELECT last, coalesce((SELECT max(last_ms) FROM usage WHERE id >= first AND id <= last), 0) / 86400000
FROM usage_requests WHERE bucket = 0;

ALTER TABLE usage_requests RENAME TO usage_requests_before;

CREATE TABLE usage_requests (
    bucket INTEGER NOT NULL,
    day INTEGER NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL,
    entries BLOB NOT NULL,
    PRIMARY KEY (bucket, day, last)
) STRICT, WITHOUT ROWID;

INSERT INTO usage_requests (bucket, day, last, first, entries)
SELECT runs.bucket, days.day, runs.last, runs.first, runs.entries
FROM usage_requests_before AS runs JOIN usage_run_days AS days ON days.last = runs.last
ORDER BY runs.bucket, runs.last;

DROP TABLE usage_requests_before;
DROP TABLE usage_run_days;
