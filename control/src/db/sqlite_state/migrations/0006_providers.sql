-- Provider instances made through the API. `settings` is JSON in the shape of an entry of the file's `providers`,
-- with dots in place of secrets; `credential` (the API key) and `headers` (a JSON map) are sealed. `number` is
-- never used again, so that a row is told from an earlier one with its id.
CREATE TABLE providers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    auth TEXT NOT NULL CHECK (auth IN ('api_key', 'oauth', 'local')),
    -- the human whose own it is; everybody's where absent
    owner TEXT REFERENCES principals (id),
    settings TEXT NOT NULL,
    credential BLOB,
    -- what may be seen of it: `${ENV:NAME}`, or its last four characters where it is long
    credential_hint TEXT,
    credential_at_ms INTEGER,
    headers BLOB,
    version INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX providers_by_owner ON providers (owner) WHERE owner IS NOT NULL;

-- Projects that may use a human's own provider instance.
CREATE TABLE bindings (
    provider TEXT NOT NULL REFERENCES providers (id) ON DELETE CASCADE,
    project TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (provider, project)
) STRICT, WITHOUT ROWID;

CREATE INDEX bindings_by_project ON bindings (project);

-- Endpoints made through the API. `failover` is JSON: [{"provider": ..., "model": ...}], in order. A member may
-- be of the file, so it is no foreign key.
CREATE TABLE endpoints (
    name TEXT NOT NULL PRIMARY KEY,
    failover TEXT NOT NULL,
    preamble TEXT,
    version INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT;
