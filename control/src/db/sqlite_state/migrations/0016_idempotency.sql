-- Answers that were kept before this release may hold keys in plain (sealed), which no longer stand in any.
DELETE FROM idempotency;
