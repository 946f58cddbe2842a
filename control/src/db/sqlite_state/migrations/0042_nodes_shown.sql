-- Oldest version beside which this one runs: 42
-- What a node reports of itself, and what an administrator has said about it.

-- By how much the clock of the node is ahead of that of the database, in milliseconds.
ALTER TABLE nodes ADD COLUMN clock_ahead_ms INTEGER NOT NULL DEFAULT 0;
-- The age of its oldest usage record that is not in the database, as a time of the database's clock; null if there is none.
ALTER TABLE nodes ADD COLUMN unstored_since_ms INTEGER;
-- The time at which an administrator declared the node lost; null if it was heard of since.
ALTER TABLE nodes ADD COLUMN forgotten_at_ms INTEGER;

INSERT INTO alert_rules VALUES
    ('rule_node_lost', 'Node lost', 'node_lost', NULL, NULL, NULL, 'bad', 60, 60, 1, 1, 0, 0),
    ('rule_node_skew', 'Node with another clock, configuration or release', 'node_skew', NULL, NULL, NULL, 'warn', 600, 60, 1, 1, 0, 0),
    ('rule_shipping_behind', 'Usage waits at a node for 5 minutes', 'shipping_behind', NULL, 5, NULL, 'bad', 0, 60, 1, 1, 0, 0);
