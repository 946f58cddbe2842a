-- Sums have the node that stored them in their key, so that no two nodes write one row. The sums from before are those of
-- node 0.
ALTER TABLE usage_hour RENAME TO usage_hour_before;
ALTER TABLE usage_day RENAME TO usage_day_before;
DROP INDEX usage_day_by_key;

CREATE TABLE usage_hour (
    hour INTEGER NOT NULL,
    node INTEGER NOT NULL,
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
    lost_nano_usd INTEGER NOT NULL DEFAULT 0,
    vendor_cost_nano_usd INTEGER NOT NULL DEFAULT 0,
    cache_write_1h_tokens INTEGER NOT NULL DEFAULT 0,
    audio_input_tokens INTEGER NOT NULL DEFAULT 0,
    audio_output_tokens INTEGER NOT NULL DEFAULT 0,
    image_input_tokens INTEGER NOT NULL DEFAULT 0,
    image_output_tokens INTEGER NOT NULL DEFAULT 0,
    characters INTEGER NOT NULL DEFAULT 0,
    audio_ms INTEGER NOT NULL DEFAULT 0,
    video_ms INTEGER NOT NULL DEFAULT 0,
    images INTEGER NOT NULL DEFAULT 0,
    searches INTEGER NOT NULL DEFAULT 0,
    tool_calls INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (hour, node, project, key, principal, provider, model, endpoint, operation, outcome)
) STRICT, WITHOUT ROWID;

INSERT INTO usage_hour
SELECT
    hour, 0, project, key, principal, provider, model, endpoint, operation, outcome, requests, unpriced,
    cost_nano_usd, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
    duration_us, first_content_us, first_contents, lost_nano_usd, vendor_cost_nano_usd, cache_write_1h_tokens,
    audio_input_tokens, audio_output_tokens, image_input_tokens, image_output_tokens, characters, audio_ms,
    video_ms, images, searches, tool_calls
FROM usage_hour_before;

DROP TABLE usage_hour_before;

CREATE TABLE usage_day (
    hour INTEGER NOT NULL,
    node INTEGER NOT NULL,
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
    lost_nano_usd INTEGER NOT NULL DEFAULT 0,
    vendor_cost_nano_usd INTEGER NOT NULL DEFAULT 0,
    cache_write_1h_tokens INTEGER NOT NULL DEFAULT 0,
    audio_input_tokens INTEGER NOT NULL DEFAULT 0,
    audio_output_tokens INTEGER NOT NULL DEFAULT 0,
    image_input_tokens INTEGER NOT NULL DEFAULT 0,
    image_output_tokens INTEGER NOT NULL DEFAULT 0,
    characters INTEGER NOT NULL DEFAULT 0,
    audio_ms INTEGER NOT NULL DEFAULT 0,
    video_ms INTEGER NOT NULL DEFAULT 0,
    images INTEGER NOT NULL DEFAULT 0,
    searches INTEGER NOT NULL DEFAULT 0,
    tool_calls INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (hour, node, project, key, principal, provider, model, endpoint, operation, outcome)
) STRICT, WITHOUT ROWID;

INSERT INTO usage_day
SELECT
    hour, 0, project, key, principal, provider, model, endpoint, operation, outcome, requests, unpriced,
    cost_nano_usd, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
    duration_us, first_content_us, first_contents, lost_nano_usd, vendor_cost_nano_usd, cache_write_1h_tokens,
    audio_input_tokens, audio_output_tokens, image_input_tokens, image_output_tokens, characters, audio_ms,
    video_ms, images, searches, tool_calls
FROM usage_day_before;

DROP TABLE usage_day_before;

CREATE INDEX usage_day_by_key ON usage_day (key, hour);
