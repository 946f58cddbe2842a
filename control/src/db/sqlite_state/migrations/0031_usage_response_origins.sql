-- The origins of the state that providers store for callers of the Responses API: responses, and conversations that they
-- belong to. `hash` is a keyed hash of the provider's ID. `day` counts days since the Unix epoch: a look-up reads the
-- newest first, and retention deletes whole days. `address` is that of the provider instance at that time. `tokens` is
-- NULL if the provider did not report them, and for conversations.
CREATE TABLE response_origins (
    day INTEGER NOT NULL,
    hash BLOB NOT NULL,
    owner TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    address TEXT NOT NULL,
    tokens INTEGER,
    PRIMARY KEY (day, hash, owner)
) STRICT, WITHOUT ROWID;
