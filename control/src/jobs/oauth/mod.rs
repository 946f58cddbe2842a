//! The gateway as an OAuth client of vendors and extensions: the calls to their addresses, and the refreshes of tokens in
//! the background.

mod refresher;
mod vendor;

pub(crate) use refresher::Refresher;
pub(crate) use vendor::Vendor;
