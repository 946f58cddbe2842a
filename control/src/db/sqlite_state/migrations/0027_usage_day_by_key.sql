-- The days of one key are read without those of all others: `GET /v1/key`, the first sum of a limit, and the spend of a
-- page of keys.
CREATE INDEX usage_day_by_key ON usage_day (key, hour);
