//! Random bytes from the operating system.

use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt;

/// Returns `N` random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], RandomError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| RandomError)?;
    Ok(bytes)
}

/// The operating system returned no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RandomError;

impl fmt::Display for RandomError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the operating system returned no random bytes")
    }
}

impl std::error::Error for RandomError {}
