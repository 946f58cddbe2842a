-- What administrators say of models, from a moment on. `facts` is JSON, as the API takes it. Rows are never changed.
CREATE TABLE catalog_overrides (
    id TEXT NOT NULL PRIMARY KEY,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    effective_from_ms INTEGER NOT NULL,
    facts TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    UNIQUE (provider, model, effective_from_ms)
) STRICT, WITHOUT ROWID;

CREATE INDEX catalog_overrides_by_time ON catalog_overrides (effective_from_ms, id);
