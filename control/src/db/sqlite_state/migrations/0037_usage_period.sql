-- Figures of the exchanges that started in a minute, an hour or a UTC day, by what charts are grouped by
-- (usage/periods). The row of a period belongs to the node that wrote it.
CREATE TABLE usage_period (
    -- The length of the period in minutes: 1, 60 or 1440.
    grain INTEGER NOT NULL,
    -- What the names are: `Section` in usage/periods.
    section INTEGER NOT NULL,
    -- Minutes since the Unix epoch.
    start INTEGER NOT NULL,
    node INTEGER NOT NULL,
    name TEXT NOT NULL,
    -- The second name of a target.
    model TEXT NOT NULL,
    -- What repricing changes.
    cost_nano_usd INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    -- Packed counts and distributions.
    figures BLOB NOT NULL,
    PRIMARY KEY (grain, section, start, node, name, model)
) STRICT, WITHOUT ROWID;

-- The end of the records of `usage` that `usage_period` counts: all rows before `place`, and the first exchanges of it.
CREATE TABLE usage_followed (
    node INTEGER NOT NULL PRIMARY KEY,
    place INTEGER NOT NULL,
    exchanges INTEGER NOT NULL,
    -- Exchanges that started before were deleted before they were counted.
    from_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
