-- The node whose journal a file belongs to: a node deletes the marks of its own files only.
ALTER TABLE usage_journal ADD COLUMN node INTEGER NOT NULL DEFAULT 0;
