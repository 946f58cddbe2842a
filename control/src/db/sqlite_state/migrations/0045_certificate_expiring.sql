-- Oldest version beside which this one runs: 45
-- The rule for certificates of providers that expire. Earlier releases do not know its kind.
INSERT INTO alert_rules VALUES
    ('rule_certificate_expiring', 'Certificate of a provider expires within 14 days', 'certificate_expiring', NULL, 14, NULL, 'warn', 0, 60, 1, 1, 0, 0);
