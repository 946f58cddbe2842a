-- True for a provider that the gateway connected because it needs no account.
ALTER TABLE providers ADD COLUMN is_anonymous INTEGER NOT NULL DEFAULT 0;

-- The last claim on the daily check of each such provider. A row outlives its provider.
CREATE TABLE anonymous_checks (
    id TEXT NOT NULL PRIMARY KEY,
    claimed_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
