-- A key and the keys that were made from it by rotation are one family, named by the id of its first key. Limits of
-- the kind `key` bind the family.
ALTER TABLE keys ADD COLUMN family TEXT NOT NULL DEFAULT '';

WITH RECURSIVE chain (key, first) AS (
    SELECT id, id FROM keys WHERE rotated_from IS NULL
    UNION ALL SELECT keys.id, chain.first FROM keys JOIN chain ON keys.rotated_from = chain.key
)
UPDATE keys SET family = chain.first FROM chain WHERE chain.key = keys.id;

CREATE INDEX keys_by_family ON keys (family);

-- Deleted keys of families that have others: what they used counts against the limits of the family.
CREATE TABLE former_keys (
    id TEXT NOT NULL PRIMARY KEY,
    family TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX former_keys_by_family ON former_keys (family);

-- Limits that a new key of the project gets, as a JSON array.
ALTER TABLE projects ADD COLUMN key_defaults TEXT;

-- Limits of a family of keys, a project, a principal, a provider instance or the whole gateway (whose `subject` is
-- empty), narrowed to one model (`provider/model`) or one endpoint where these are set. No row goes because another
-- one goes: the command that deletes a subject deletes its limits and says so in the audit. A limit is in the unit of
-- its metric, money in micro-dollars. Concurrent requests are counted in no window.
CREATE TABLE quotas_after (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('key', 'project', 'principal', 'provider', 'gateway')),
    subject TEXT NOT NULL,
    model TEXT,
    endpoint TEXT,
    metric TEXT NOT NULL CHECK (metric IN
        ('requests', 'concurrent_requests', 'input_tokens', 'output_tokens', 'total_tokens', 'cost_micro_usd')),
    period TEXT CHECK (period IN ('minute', 'hour', 'day', 'week', 'month', 'total')),
    amount INTEGER NOT NULL,
    hard INTEGER NOT NULL CHECK (hard IN (0, 1)),
    version INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    CHECK ((kind = 'gateway') = (subject = '')),
    CHECK ((metric = 'concurrent_requests') = (period IS NULL))
) STRICT, WITHOUT ROWID;

INSERT INTO quotas_after
SELECT quotas.id,
    CASE WHEN quotas.key IS NOT NULL THEN 'key' WHEN quotas.project IS NOT NULL THEN 'project' ELSE 'principal' END,
    coalesce(keys.family, quotas.project, quotas.principal), NULL, NULL,
    metric, period, amount, hard, quotas.version, quotas.created_at_ms, quotas.updated_at_ms
FROM quotas LEFT JOIN keys ON keys.id = quotas.key;

CREATE TABLE quota_used_after (
    quota TEXT NOT NULL REFERENCES quotas_after (id) ON DELETE CASCADE,
    window_start_ms INTEGER NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (quota, window_start_ms)
) STRICT, WITHOUT ROWID;

INSERT INTO quota_used_after SELECT quota, window_start_ms, used FROM quota_used;

DROP TABLE quota_used;
DROP TABLE quotas;
ALTER TABLE quotas_after RENAME TO quotas;
ALTER TABLE quota_used_after RENAME TO quota_used;

CREATE INDEX quotas_by_subject ON quotas (kind, subject);
