-- Sign-ins at the vendors of provider instances that have begun, at most one for each instance, and how the last one
-- failed. A flow that is completed leaves no row.
CREATE TABLE sign_in_flows (
    provider TEXT NOT NULL PRIMARY KEY,
    -- the random name of the flow, in hexadecimal digits
    id TEXT NOT NULL UNIQUE,
    -- what completes the flow, sealed; NULL after it failed
    flow BLOB,
    -- the time until which the human must have consented, or at which the flow failed
    ends_at_ms INTEGER NOT NULL,
    failure TEXT,
    CHECK ((flow IS NULL) = (failure IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX sign_in_flows_by_end ON sign_in_flows (ends_at_ms);
