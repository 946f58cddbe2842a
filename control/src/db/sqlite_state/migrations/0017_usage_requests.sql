-- The look-up of request ids. A run stands for rows of `usage` that follow each other, from `first` to `last`; it has one
-- row in each of 256 buckets, with an entry for each request id whose hash belongs there (usage/request_index). Rows of
-- `usage` after the last run are looked through. Runs of a table from before this migration are made bit by bit.
CREATE TABLE usage_requests (
    bucket INTEGER NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL,
    entries BLOB NOT NULL,
    PRIMARY KEY (bucket, last)
) STRICT, WITHOUT ROWID;
