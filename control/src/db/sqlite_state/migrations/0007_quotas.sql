-- Limits of a key, a project or a human: exactly one of the three. A limit is in the unit of its metric, money in
-- micro-dollars.
CREATE TABLE quotas (
    id TEXT NOT NULL PRIMARY KEY,
    key TEXT REFERENCES keys (id) ON DELETE CASCADE,
    project TEXT REFERENCES projects (id) ON DELETE CASCADE,
    principal TEXT REFERENCES principals (id) ON DELETE CASCADE,
    metric TEXT NOT NULL
        CHECK (metric IN ('requests', 'input_tokens', 'output_tokens', 'total_tokens', 'cost_micro_usd')),
    period TEXT NOT NULL CHECK (period IN ('minute', 'hour', 'day', 'month', 'total')),
    amount INTEGER NOT NULL,
    hard INTEGER NOT NULL CHECK (hard IN (0, 1)),
    version INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    CHECK ((key IS NOT NULL) + (project IS NOT NULL) + (principal IS NOT NULL) = 1)
) STRICT, WITHOUT ROWID;

CREATE INDEX quotas_by_key ON quotas (key) WHERE key IS NOT NULL;
CREATE INDEX quotas_by_project ON quotas (project) WHERE project IS NOT NULL;
CREATE INDEX quotas_by_principal ON quotas (principal) WHERE principal IS NOT NULL;

-- What was used in a calendar window of a limit, money in nano-dollars; written in the same transaction as the
-- usage itself. The sliding minute has no row: it is read from the usage of the last minute.
CREATE TABLE quota_used (
    quota TEXT NOT NULL REFERENCES quotas (id) ON DELETE CASCADE,
    window_start_ms INTEGER NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (quota, window_start_ms)
) STRICT, WITHOUT ROWID;
