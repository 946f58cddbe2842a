//! The known models and their facts: the upstreams' own lists, cached in the database, the price list, overrides by
//! administrators, and the evidence that a connection works. Unknown facts stay unknown.

mod built_in;
pub(crate) mod cache;
pub(crate) mod documents;
pub(crate) mod entry;
pub(crate) mod evidence;
pub(crate) mod facts;
pub(crate) mod file;
pub(crate) mod history;
pub(crate) mod listing;
pub(crate) mod merge;
pub(crate) mod periodic_sync;
pub(crate) mod price_feed;
pub(crate) mod price_file;
pub(crate) mod prices;
pub(crate) mod publication;
pub(crate) mod sync;
pub(crate) mod test_completion;
pub(crate) mod test_request;
