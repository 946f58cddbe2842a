-- The latest hour in which each key was used, in hours since the Unix epoch, by the node that served it. Whoever deletes a
-- key deletes its rows: a reference would make the storing of usage lock the rows of keys.
CREATE TABLE key_use (
    key TEXT NOT NULL,
    node INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    PRIMARY KEY (key, node)
) STRICT, WITHOUT ROWID;

INSERT INTO key_use (key, node, hour) SELECT id, 0, last_used_hour FROM keys WHERE last_used_hour IS NOT NULL;

ALTER TABLE keys DROP COLUMN last_used_hour;
