//! A session to a server.

use sprat_rpc::{MAX_SLOTS, SessionId};
use std::net::SocketAddr;

/// A session, and the operation in each of its slots.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) peer: SocketAddr,
    pub(crate) slots: [u32; MAX_SLOTS],
}
