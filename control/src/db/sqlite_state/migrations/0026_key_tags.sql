-- The default tags of a key's requests, such as `run=a,team=b`; NULL for none.
ALTER TABLE keys ADD COLUMN tags TEXT;
