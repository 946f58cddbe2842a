-- Secrets of the database itself, sealed. `data_key` opens everything else and is sealed by the key of the
-- environment; all others are sealed by `data_key`.
CREATE TABLE vault (
    name TEXT NOT NULL PRIMARY KEY,
    sealed BLOB NOT NULL,
    created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
