-- One row an exchange. `origin` and `sequence` are the event's own name, given before it was stored: storing
-- the same event again changes nothing.
CREATE TABLE usage (
    id INTEGER PRIMARY KEY,
    origin INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    started_at_ms INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    project TEXT,
    principal TEXT,
    selector TEXT NOT NULL,
    endpoint TEXT,
    provider TEXT,
    model TEXT,
    stream INTEGER NOT NULL,
    status INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    error TEXT,
    input_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    provenance TEXT NOT NULL,
    head_us INTEGER,
    first_content_us INTEGER,
    trace TEXT NOT NULL,
    UNIQUE (origin, sequence)
) STRICT;

-- Newest first, and windows of time.
CREATE INDEX usage_by_time ON usage (started_at_ms);
CREATE INDEX usage_by_request ON usage (request_id);

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
