-- Oldest version beside which this one runs: 40
-- What a node tells of itself for changes of all of them: the newest version of the tables that its release knows, and which
-- seal of the data key it has opened, as the first hexadecimal digits of the seal's SHA-256.
ALTER TABLE nodes ADD COLUMN schema_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN key_seal TEXT NOT NULL DEFAULT '';
