-- Nodes that share a PostgreSQL. A gateway with a database of its own is node 0 and leaves these tables as they are. All
-- times are milliseconds since the Unix epoch by the clock of the database.

-- One row.
CREATE TABLE cluster (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    -- The number of the newest change of the state. A change locks the row, so that changes happen one at a time.
    version INTEGER NOT NULL,
    -- The token of that change; empty before the first one.
    token TEXT NOT NULL,
    -- The start of the server whose commits the fences know, in microseconds since the Unix epoch; 0 before the first one.
    server INTEGER NOT NULL,
    -- No share of a limit is granted before this time: after a failover, nodes assert what they hold first.
    no_grants_before_ms INTEGER NOT NULL
) STRICT;
INSERT INTO cluster (id, version, token, server, no_grants_before_ms) VALUES (1, 0, '', 0, 0);

-- The newest changes of the state, without gaps.
CREATE TABLE changes (
    version INTEGER NOT NULL PRIMARY KEY,
    -- Random; tells whether a commit without an answer has happened, and whether it was lost in a failover.
    token TEXT NOT NULL,
    -- The node that made the change.
    node INTEGER NOT NULL,
    made_at_ms INTEGER NOT NULL,
    -- What other nodes must read again, as JSON.
    touched TEXT NOT NULL
) STRICT;

-- Each node since its first start. 0 is none: merged sums have that number.
CREATE TABLE nodes (
    node INTEGER NOT NULL PRIMARY KEY CHECK (node > 0),
    -- Random; also in the node's file, so that a number cannot be used by two.
    identity TEXT NOT NULL UNIQUE,
    -- The node is live until this time, which it renews.
    alive_until_ms INTEGER NOT NULL,
    -- The newest change that the node serves by.
    seen_version INTEGER NOT NULL,
    release TEXT NOT NULL,
    -- SHA-256 of the configuration file as hexadecimal digits.
    file_digest TEXT NOT NULL,
    name TEXT NOT NULL,
    -- The time at which the node stopped in order; null while it runs, and after a crash.
    left_at_ms INTEGER
) STRICT;

-- One row for each session of a node that writes usage or shares.
CREATE TABLE fences (
    node INTEGER NOT NULL,
    lane TEXT NOT NULL,
    -- The number of the process; each start takes the next one.
    incarnation INTEGER NOT NULL,
    -- The number of its last transaction.
    seq INTEGER NOT NULL,
    PRIMARY KEY (node, lane)
) STRICT, WITHOUT ROWID;

-- Which node does a job that is done once in the cluster, and until when.
CREATE TABLE job_leases (
    job TEXT NOT NULL PRIMARY KEY,
    node INTEGER NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What nodes show each other for a short time.
CREATE TABLE board (
    node INTEGER NOT NULL,
    topic TEXT NOT NULL,
    body BLOB NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (node, topic)
) STRICT, WITHOUT ROWID;
