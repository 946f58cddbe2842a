//! What models there are and what is known of them: the upstreams' own lists, kept in `catalog.json`, the price list,
//! what administrators say, and the evidence that a connection works. Unknown stays unknown.

pub(crate) mod ask;
pub(crate) mod evidence;
pub(crate) mod file;
pub(crate) mod history;
pub(crate) mod listing;
pub(crate) mod merge;
pub(crate) mod price_feed;
pub(crate) mod prices;
pub(crate) mod shelf;
pub(crate) mod sync;
pub(crate) mod test_completion;
