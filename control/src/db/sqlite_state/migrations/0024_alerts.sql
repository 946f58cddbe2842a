-- Rules for alerts. `objects` is a JSON array of the objects that a rule concerns, or NULL for all. The meaning and the
-- unit of `threshold` depend on the kind; `floor_micro_usd` is only used for anomalies of spending.
CREATE TABLE alert_rules (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    objects TEXT,
    threshold REAL,
    floor_micro_usd INTEGER,
    severity TEXT NOT NULL CHECK (severity IN ('warn', 'bad')),
    -- The time for which a condition must hold before an alert opens.
    hold_seconds INTEGER NOT NULL,
    -- The time for which a condition must be absent before its alert is resolved.
    clear_seconds INTEGER NOT NULL,
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    version INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO alert_rules VALUES
    ('rule_quota_warning', 'Quota at 80 per cent', 'quota_warning', NULL, 80, NULL, 'warn', 0, 300, 1, 1, 0, 0),
    ('rule_quota_exhausted', 'Quota used up', 'quota_exhausted', NULL, NULL, NULL, 'bad', 0, 300, 1, 1, 0, 0),
    ('rule_key_expiring', 'Key expires within a week', 'key_expiring', NULL, 7, NULL, 'warn', 0, 60, 1, 1, 0, 0),
    ('rule_provider_down', 'Provider down', 'provider_down', NULL, NULL, NULL, 'bad', 20, 120, 1, 1, 0, 0),
    ('rule_provider_recovered', 'Provider works again', 'provider_recovered', NULL, NULL, NULL, 'warn', 0, 0, 1, 1, 0, 0),
    ('rule_credential_expiring', 'Credential expires and is not renewed', 'credential_expiring', NULL, 1, NULL, 'warn', 60, 300, 1, 1, 0, 0),
    ('rule_credential_broken', 'Credential rejected', 'credential_broken', NULL, NULL, NULL, 'bad', 20, 300, 1, 1, 0, 0),
    ('rule_spend_anomaly', 'Unusual spending', 'spend_anomaly', NULL, 3, 5000000, 'bad', 0, 3600, 1, 1, 0, 0),
    ('rule_catalog_drift', 'Model of an endpoint is no longer listed', 'catalog_drift', NULL, NULL, NULL, 'warn', 0, 300, 1, 1, 0, 0),
    ('rule_config_reload_failed', 'Changed configuration is invalid', 'config_reload_failed', NULL, NULL, NULL, 'bad', 0, 30, 1, 1, 0, 0),
    ('rule_disk_low', 'Less than 10 per cent of the disk is free', 'disk_low', NULL, 10, NULL, 'bad', 60, 600, 1, 1, 0, 0),
    ('rule_backup_failed', 'Backup failed', 'backup_failed', NULL, NULL, NULL, 'bad', 0, 0, 1, 1, 0, 0);

-- Alerts. At most one alert of a rule and an object is not resolved.
CREATE TABLE alerts (
    id TEXT NOT NULL PRIMARY KEY,
    rule TEXT NOT NULL,
    kind TEXT NOT NULL,
    object TEXT,
    severity TEXT NOT NULL CHECK (severity IN ('warn', 'bad')),
    text TEXT NOT NULL,
    -- A JSON object of numbers.
    figures TEXT NOT NULL,
    first_at_ms INTEGER NOT NULL,
    last_at_ms INTEGER NOT NULL,
    times INTEGER NOT NULL,
    acked_at_ms INTEGER,
    acked_by TEXT,
    resolved_at_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX alerts_unresolved ON alerts (rule, coalesce(object, '')) WHERE resolved_at_ms IS NULL;
CREATE INDEX alerts_resolved ON alerts (resolved_at_ms) WHERE resolved_at_ms IS NOT NULL;
