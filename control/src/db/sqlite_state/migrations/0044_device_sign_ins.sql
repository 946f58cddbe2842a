-- Oldest version beside which this one runs: 43
-- Sign-ins of clients that a person approves in the console. A sign-in that was completed leaves no row.
CREATE TABLE device_sign_ins (
    -- SHA-256 of the code that only the client knows
    code_hash BLOB NOT NULL PRIMARY KEY,
    -- the code that the person confirms, in capital letters
    user_code TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'denied')),
    -- the address of the client
    address TEXT,
    created_at_ms INTEGER NOT NULL,
    ends_at_ms INTEGER NOT NULL,
    -- who approved it and for which project, as JSON
    approval TEXT,
    CHECK ((state = 'approved') = (approval IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX device_sign_ins_by_end ON device_sign_ins (ends_at_ms);
