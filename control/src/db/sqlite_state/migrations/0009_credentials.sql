-- Keys of provider instances of the configuration file, taken over from `secrets.json`. `sealed` is the API key.
CREATE TABLE credentials (
    provider TEXT NOT NULL PRIMARY KEY,
    sealed BLOB NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
