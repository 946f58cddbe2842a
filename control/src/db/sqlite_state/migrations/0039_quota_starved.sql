-- The last time at which a request of some node waited for a share of the window and nothing was left to grant, on the
-- database's clock: nodes that hold a share then give back what nothing uses.
ALTER TABLE quota_window ADD COLUMN starved_at_ms INTEGER;
