-- The digest of the other columns of a row (db/packed_row.rs); null in rows from before this migration.
ALTER TABLE usage ADD COLUMN digest INTEGER;
