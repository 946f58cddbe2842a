-- Texts that are kept as a whole: the lists of models with their evidence, and the price list. `version` grows with each
-- change. `content` is compressed with zstd; `bytes` and `digest` (SHA-256) are those of the text.
CREATE TABLE documents (
    name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    digest BLOB NOT NULL,
    content BLOB NOT NULL
) STRICT;
