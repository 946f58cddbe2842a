//! Sessions with a PostgreSQL server, for callers that are not asynchronous: each session drives its connection on the
//! thread that uses it, and blocks until the server has answered. Knows no table.
//!
//! No state is kept in a session of the server beside prepared statements, so a transaction pooler that knows prepared
//! statements (`PgBouncer` 1.21 and newer) may stand between. Only a [`Listener`] subscribes, and hears nothing then.

mod bulk;
mod error;
mod listener;
mod pipeline;
mod session;
mod settings;
mod tls;
mod value;

pub use bulk::{CopyIn, RowStream};
pub use error::{Error, ErrorKind};
pub use listener::{Heard, Listener};
pub use pipeline::Call;
pub use session::{Prepared, Session};
pub use settings::{Settings, SettingsError};
pub use value::{Field, Kind, Row};
