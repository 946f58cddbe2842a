//! Admission of requests: authentication, authorization and quotas.

pub(crate) mod authenticate;
pub(crate) mod authorize;
pub(crate) mod demand;
pub(crate) mod labels;
pub(crate) mod line;
pub(crate) mod policy;
pub(crate) mod quota;
pub(crate) mod share_wait;
mod spend;
