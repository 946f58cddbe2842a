-- Humans.
CREATE TABLE principals (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT UNIQUE,
    disabled INTEGER NOT NULL CHECK (disabled IN (0, 1)),
    version INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What owns keys and quotas. The allowlists are JSON arrays; an absent one is NULL.
CREATE TABLE projects (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    disabled INTEGER NOT NULL CHECK (disabled IN (0, 1)),
    models TEXT,
    endpoints TEXT,
    routes TEXT,
    version INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE members (
    project TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    principal TEXT NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'member', 'viewer')),
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (project, principal)
) STRICT, WITHOUT ROWID;

CREATE INDEX members_by_principal ON members (principal);

-- Keys that open the data plane. `hash` is an HMAC of the key; `sealed`, where it can be revealed, the key itself.
-- A human whom only revoked keys name may be forgotten, and a revoked key that others were made from deleted.
CREATE TABLE keys (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    project TEXT NOT NULL REFERENCES projects (id),
    acts_as TEXT REFERENCES principals (id) ON DELETE SET NULL,
    hash BLOB NOT NULL UNIQUE,
    prefix TEXT NOT NULL,
    sealed BLOB,
    state TEXT NOT NULL CHECK (state IN ('active', 'disabled', 'revoked')),
    expires_at_ms INTEGER,
    models TEXT,
    endpoints TEXT,
    routes TEXT,
    -- The newest hour of its use, in hours since the Unix epoch.
    last_used_hour INTEGER,
    rotated_from TEXT REFERENCES keys (id) ON DELETE SET NULL,
    version INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX keys_by_project ON keys (project);
CREATE INDEX keys_by_acts_as ON keys (acts_as) WHERE acts_as IS NOT NULL;
CREATE INDEX keys_by_rotated_from ON keys (rotated_from) WHERE rotated_from IS NOT NULL;
