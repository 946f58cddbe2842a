-- Extensions: services outside the process that provide models. `secret` is sealed. `last_check` and `providers` are JSON:
-- the result of the last probe, and the providers that the last successful one found.
CREATE TABLE extensions (
    name TEXT NOT NULL PRIMARY KEY,
    url TEXT NOT NULL,
    secret BLOB NOT NULL,
    secret_at_ms INTEGER NOT NULL,
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    last_check TEXT,
    providers TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT;
