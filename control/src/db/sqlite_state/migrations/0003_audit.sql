-- Who did what, in order. `mac` is an HMAC-SHA-256 over the row and the `mac` of the row before, under a key
-- derived from the data key. Ids have no gaps, and where the chain begins and ends is sealed in `vault`.
CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    object_kind TEXT NOT NULL,
    object_id TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('done', 'refused')),
    address TEXT,
    request_id TEXT,
    -- JSON: {"before": ..., "after": ...}, secrets masked
    detail TEXT NOT NULL,
    mac BLOB NOT NULL
) STRICT;

CREATE INDEX audit_by_object ON audit (object_kind, object_id);

-- The answers to requests with an Idempotency-Key, sealed, for as long as the key is remembered.
CREATE TABLE idempotency (
    actor TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    status INTEGER NOT NULL,
    version INTEGER,
    body BLOB NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (actor, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_by_time ON idempotency (created_at_ms);
