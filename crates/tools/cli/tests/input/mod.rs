//! Tests the real binary with bad input: garbage from the network, damaged files, wrong settings.

mod damage;
mod disk_full;
mod network;
mod settings;

use crate::support;
use sprat_client::{Client, Options};
use support::{PATIENCE, ServerProcess};

/// Flags of a small server that is ready at once.
const SMALL: [&str; 4] = ["--memory", "64M", "--disk", "256M"];

fn connect(server: &ServerProcess) -> Client {
    let options = Options {
        coordinator: server.coordinator.clone(),
        timeout: PATIENCE,
        ..Options::default()
    };
    Client::connect(&options).expect("a client")
}
