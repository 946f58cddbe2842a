//! Scans multipart forms (RFC 7578) for the fields that the gateway needs while they arrive. Files pass unchanged and
//! are never copied.

mod disposition;
mod scan;

pub use disposition::boundary;
pub use scan::{FormFault, FormFields, FormScan};

#[cfg(test)]
mod tests;
