-- Captured exchanges, the newest with the greatest id.
CREATE TABLE captured (
    id INTEGER PRIMARY KEY,
    request_id TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    -- The recorded exchange as JSON, sealed to the request id.
    exchange BLOB NOT NULL
) STRICT;

CREATE INDEX captured_by_request ON captured (request_id);
CREATE INDEX captured_by_time ON captured (at_ms);
