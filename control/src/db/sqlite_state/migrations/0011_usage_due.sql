-- What recorded exchanges mean for tables of `gateway.db`, written with them while they are in `usage.db` and
-- counted there afterwards, each row once: `amount` of a window of `quota`, or an hour in which `key` was used.
CREATE TABLE usage_due (
    id INTEGER PRIMARY KEY,
    quota TEXT,
    key TEXT,
    at INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    CHECK ((quota IS NULL) <> (key IS NULL))
) STRICT;
