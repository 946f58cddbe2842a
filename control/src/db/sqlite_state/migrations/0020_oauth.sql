-- Sign-ins of humans at the vendors of provider instances, of the file or of the API. `tokens` is the JSON of the access
-- and the refresh token, sealed; NULL after the vendor refused a refresh.
CREATE TABLE oauth_connections (
    provider TEXT NOT NULL PRIMARY KEY,
    -- the human who signed in
    owner TEXT NOT NULL REFERENCES principals (id),
    -- grows with each change of the tokens
    serial INTEGER NOT NULL,
    -- digest of the client ID, the token address and the API address that the tokens were granted for
    binding TEXT NOT NULL,
    tokens BLOB,
    account TEXT,
    -- separated by spaces
    scopes TEXT NOT NULL,
    expires_at_ms INTEGER,
    connected_at_ms INTEGER NOT NULL,
    refreshed_at_ms INTEGER,
    -- set before a refresh is sent, removed with the tokens that it returns
    refresh_began_at_ms INTEGER,
    failed_at_ms INTEGER,
    failure TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX oauth_connections_by_owner ON oauth_connections (owner);
