-- The sums that are not merged into those of node 0. A gateway with a database of its own has none. On PostgreSQL this
-- migration also gives the table `usage` its partitions (db/engine/postgres/partitions.rs).
CREATE INDEX usage_hour_of_nodes ON usage_hour (hour) WHERE node <> 0;
CREATE INDEX usage_day_of_nodes ON usage_day (hour) WHERE node <> 0;
CREATE INDEX usage_period_of_nodes ON usage_period (grain, start) WHERE node <> 0;
