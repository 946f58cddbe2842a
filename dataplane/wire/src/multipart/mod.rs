//! Multipart forms (RFC 7578): what the gateway must know of one, found while it arrives. Files pass untouched and
//! are never copied.

mod disposition;
mod scan;

pub use disposition::boundary;
pub use scan::{FormFault, FormFields, FormScan};

#[cfg(test)]
mod tests;
