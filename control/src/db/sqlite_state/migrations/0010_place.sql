-- Where the tables of usage are: here, or, where `apart` is 1, in `usage.db`. `taken` is the last row of their
-- `usage_due` that is counted here.
CREATE TABLE usage_place (
    only INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
    apart INTEGER NOT NULL CHECK (apart IN (0, 1)),
    taken INTEGER NOT NULL
) STRICT;

INSERT INTO usage_place VALUES (1, 0, 0);
