-- Receivers of events. `url`, `secret` and `secret_before` are sealed: the addresses of many receivers are secrets.
-- `kinds` is a JSON array, or NULL for all kinds.
CREATE TABLE webhooks (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    url BLOB NOT NULL,
    -- The part of the address that may be shown.
    url_hint TEXT NOT NULL,
    format TEXT NOT NULL CHECK (format IN ('json', 'slack')),
    kinds TEXT,
    send_resolved INTEGER NOT NULL CHECK (send_resolved IN (0, 1)),
    in_order INTEGER NOT NULL CHECK (in_order IN (0, 1)),
    retry_seconds INTEGER NOT NULL,
    disabled INTEGER NOT NULL CHECK (disabled IN (0, 1)),
    secret BLOB NOT NULL,
    -- The secret before the last rotation, which signs as well until `secret_before_until_ms`.
    secret_before BLOB,
    secret_before_until_ms INTEGER,
    version INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Messages for receivers and workers, in the order of their commits. An event is inserted in the transaction of its
-- cause. `data` is a JSON object.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    object TEXT,
    data TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL
) STRICT;

-- One delivery of an event: to a webhook, or to external workers where `webhook` is NULL. `next_at_ms` is the time of
-- the next try while the delivery is pending, and the end of the lease while it is leased.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    event INTEGER NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    webhook TEXT REFERENCES webhooks (id) ON DELETE CASCADE,
    state TEXT NOT NULL CHECK (state IN ('pending', 'leased', 'delivered', 'dead')),
    tries INTEGER NOT NULL,
    next_at_ms INTEGER,
    lease TEXT,
    worker TEXT,
    last_status INTEGER,
    last_error TEXT,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    CHECK ((state IN ('pending', 'leased')) = (next_at_ms IS NOT NULL)),
    CHECK ((state = 'leased') = (lease IS NOT NULL))
) STRICT;

CREATE INDEX outbox_by_event ON outbox (event);
CREATE INDEX outbox_by_webhook ON outbox (webhook, id);
CREATE INDEX outbox_due ON outbox (webhook, next_at_ms) WHERE state = 'pending';
CREATE INDEX outbox_leased ON outbox (next_at_ms) WHERE state = 'leased';
CREATE INDEX outbox_dead ON outbox (id) WHERE state = 'dead';
