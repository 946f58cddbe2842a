-- What was measured at a target in a minute. A minute may have several rows of a target; readers add them up.
CREATE TABLE target_minute (
    id INTEGER PRIMARY KEY,
    -- Minutes since the Unix epoch.
    minute INTEGER NOT NULL,
    -- Both are empty for exchanges that reached no target.
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    -- Packed counts and distributions.
    sums BLOB NOT NULL
) STRICT;

CREATE INDEX target_minute_by_time ON target_minute (minute);

-- Circuits that opened or closed.
CREATE TABLE circuit_change (
    id INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    provider TEXT NOT NULL,
    -- NULL for the circuit of the provider instance itself.
    model TEXT,
    -- 1 if the circuit opened, 0 if it closed.
    is_open INTEGER NOT NULL,
    -- The last failure before the circuit was seen open.
    result TEXT,
    status INTEGER
) STRICT;

CREATE INDEX circuit_change_by_time ON circuit_change (at_ms);
