//! Clients of a server that a test started.

use sprat_client::{Client, Options};
use sprat_store::server::Server;
use sprat_testing::PATIENCE;

/// Returns the options with which a client reaches a server. The timeout is longer than by default:
/// on a busy machine, 3,000 durable writes took more than 10 s.
pub(crate) fn options_for(server: &Server) -> Options {
    let coordinator = server.coordinator.to_string();
    Options { coordinator, timeout: PATIENCE, ..Options::default() }
}

/// Returns a client of a server.
pub(crate) fn client_of(server: &Server) -> Client {
    Client::connect(&options_for(server)).expect("a client")
}
