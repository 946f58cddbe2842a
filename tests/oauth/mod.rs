//! OAuth connections: a human signs in to a vendor with an account of their own (AUTH-4, M-047, M-104 to M-107, M-186).

mod refresh;
mod secrets;
mod sign_in;
