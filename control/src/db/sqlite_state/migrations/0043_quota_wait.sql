-- Oldest version beside which this one runs: 42
-- The longest time for which a request waits until a hard limit leaves what it needs, in milliseconds.
ALTER TABLE quotas ADD COLUMN wait_ms INTEGER NOT NULL DEFAULT 0;
