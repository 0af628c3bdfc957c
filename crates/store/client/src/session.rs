//! A session to a server.

use crate::calls::Carried;
use sprat_rpc::{MAX_SLOTS, SessionId};
use std::net::SocketAddr;

/// A session, and what the call in each of its slots carries.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) peer: SocketAddr,
    pub(crate) slots: [Carried; MAX_SLOTS],
}
