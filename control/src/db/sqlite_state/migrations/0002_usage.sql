-- Finished exchanges, some of them a row, in the order in which they ended. What is in the blobs is told by
-- records/src/block.rs: `rows` holds the exchanges, `names` the texts that they share, and `requests` a hash of each
-- request id. They are packed because one row and its index entries for each exchange cost as much to write
-- as the exchange itself costs to relay.
CREATE TABLE usage (
    id INTEGER PRIMARY KEY,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    exchanges INTEGER NOT NULL,
    requests BLOB NOT NULL,
    names BLOB NOT NULL,
    rows BLOB NOT NULL
) STRICT;

-- Newest first, and windows of time.
CREATE INDEX usage_by_time ON usage (last_ms, first_ms);

-- How many bytes of each journal file are stored, written in the same transaction as what was in them: no
-- exchange is stored twice or not at all.
CREATE TABLE usage_journal (
    origin INTEGER NOT NULL,
    number INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (origin, number)
) STRICT, WITHOUT ROWID;

-- Sums of `usage` by hour (hours since the Unix epoch), written in the same transaction. An absent name is ''.
CREATE TABLE usage_hour (
    hour INTEGER NOT NULL,
    project TEXT NOT NULL,
    key TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    operation TEXT NOT NULL,
    outcome TEXT NOT NULL,
    requests INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    first_content_us INTEGER NOT NULL,
    first_contents INTEGER NOT NULL,
    PRIMARY KEY (hour, project, key, provider, model, endpoint, operation, outcome)
) STRICT, WITHOUT ROWID;
