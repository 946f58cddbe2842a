-- What was used of a limit in a calendar window, money in nano-dollars, by the node that stored the usage: no two nodes write
-- one row. `granted` of a share is what its node may use of the window, `granted` of the window the sum of its shares. A
-- gateway with a database of its own is node 0 and needs no grant: it compares with the limit itself, and its share is what
-- was used. `short_node` is the node that holds less than a request may need; one at a time does.
CREATE TABLE quota_window (
    quota TEXT NOT NULL REFERENCES quotas (id) ON DELETE CASCADE,
    start_ms INTEGER NOT NULL,
    granted INTEGER NOT NULL,
    short_node INTEGER,
    PRIMARY KEY (quota, start_ms)
) STRICT, WITHOUT ROWID;

CREATE TABLE quota_share (
    quota TEXT NOT NULL REFERENCES quotas (id) ON DELETE CASCADE,
    start_ms INTEGER NOT NULL,
    node INTEGER NOT NULL,
    granted INTEGER NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (quota, start_ms, node)
) STRICT, WITHOUT ROWID;

INSERT INTO quota_window (quota, start_ms, granted) SELECT quota, window_start_ms, used FROM quota_used;
INSERT INTO quota_share (quota, start_ms, node, granted, used) SELECT quota, window_start_ms, 0, used, used FROM quota_used;

DROP TABLE quota_used;
