//! A session to a server.

use crate::calls::Carried;
use sprat_rpc::{MAX_SLOTS, SessionId};
use std::net::SocketAddr;

/// A session, and what the last call in each of its slots carries; `None`: no call was made in the
/// slot yet.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) peer: SocketAddr,
    pub(crate) slots: [Option<Carried>; MAX_SLOTS],
}
