-- The minutes of targets are in the table `usage_period` of the usage.
DROP TABLE target_minute;
