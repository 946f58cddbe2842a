-- Sums of every class of consumption, and of what failed attempts cost. `cost_nano_usd` includes `lost_nano_usd`;
-- `vendor_cost_nano_usd` is what vendors reported themselves.
ALTER TABLE usage_hour ADD COLUMN lost_nano_usd INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN vendor_cost_nano_usd INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN cache_write_1h_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN audio_input_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN audio_output_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN image_input_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN image_output_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN characters INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN audio_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN video_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN images INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN searches INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN tool_calls INTEGER NOT NULL DEFAULT 0;

ALTER TABLE usage_day ADD COLUMN lost_nano_usd INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_day ADD COLUMN vendor_cost_nano_usd INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_day ADD COLUMN cache_write_1h_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_day ADD COLUMN audio_input_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_day ADD COLUMN audio_output_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_day ADD COLUMN image_input_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_day ADD COLUMN image_output_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_day ADD COLUMN characters INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_day ADD COLUMN audio_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_day ADD COLUMN video_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_day ADD COLUMN images INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_day ADD COLUMN searches INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_day ADD COLUMN tool_calls INTEGER NOT NULL DEFAULT 0;
