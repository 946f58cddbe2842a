-- Console sessions that were ended before their time. A session itself is a sealed ticket in the browser's cookie, so
-- these rows are all that is stored of sessions.
CREATE TABLE ended_sessions (
    -- `principal/` with the ID of a human, or `key/` with the keyed hash of an administrator's key
    holder TEXT NOT NULL,
    -- SHA-256 of the session's ID in hexadecimal digits; empty for all sessions of the holder that began by `began_ms`
    session TEXT NOT NULL,
    began_ms INTEGER NOT NULL,
    -- the time from which no ticket of the session is valid anyway
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (holder, session)
) STRICT, WITHOUT ROWID;

CREATE INDEX ended_sessions_by_until ON ended_sessions (until_ms);
