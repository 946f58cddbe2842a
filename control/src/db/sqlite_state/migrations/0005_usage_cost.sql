-- Sums by hour and by day know the principal and the cost. `unpriced` counts the exchanges whose cost is not
-- known; of those before this migration no cost is. In `usage_day`, `hour` is the first hour of the day.
ALTER TABLE usage_hour RENAME TO usage_hour_before;

CREATE TABLE usage_hour (
    hour INTEGER NOT NULL,
    project TEXT NOT NULL,
    key TEXT NOT NULL,
    principal TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    operation TEXT NOT NULL,
    outcome TEXT NOT NULL,
    requests INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    first_content_us INTEGER NOT NULL,
    first_contents INTEGER NOT NULL,
    PRIMARY KEY (hour, project, key, principal, provider, model, endpoint, operation, outcome)
) STRICT, WITHOUT ROWID;

INSERT INTO usage_hour
SELECT hour, project, key, '', provider, model, endpoint, operation, outcome, requests, requests, 0,
    input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
    duration_us, first_content_us, first_contents
FROM usage_hour_before;

DROP TABLE usage_hour_before;

CREATE TABLE usage_day (
    hour INTEGER NOT NULL,
    project TEXT NOT NULL,
    key TEXT NOT NULL,
    principal TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    operation TEXT NOT NULL,
    outcome TEXT NOT NULL,
    requests INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    first_content_us INTEGER NOT NULL,
    first_contents INTEGER NOT NULL,
    PRIMARY KEY (hour, project, key, principal, provider, model, endpoint, operation, outcome)
) STRICT, WITHOUT ROWID;

INSERT INTO usage_day
SELECT hour - hour % 24 AS hour, project, key, principal, provider, model, endpoint, operation, outcome,
    sum(requests), sum(unpriced), sum(cost_nano_usd), sum(input_tokens), sum(cache_read_tokens),
    sum(cache_write_tokens), sum(output_tokens), sum(reasoning_tokens), sum(duration_us), sum(first_content_us),
    sum(first_contents)
FROM usage_hour
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9;
