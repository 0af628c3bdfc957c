//! The flags that name a cluster, and connecting to it.

use crate::meta::key::IdentityArgs;
use crate::quantity;
use anyhow::Result;
use clap::Args;
use sprat_client::{Client, FileError, Mode, Options};
use std::time::Duration;

/// Where the coordinator is.
#[derive(Args, Clone, Debug)]
pub(crate) struct Connect {
    /// Locator of the coordinator; of several, all of them with commas between.
    #[arg(
        short = 'C',
        long,
        value_name = "LOCATOR",
        default_value = DEFAULT_COORDINATOR,
        env = "SPRAT_COORDINATOR",
        global = true
    )]
    pub(super) coordinator: String,

    /// Our own end, when tables are served over fast+dpdk: address, port 0, device.
    #[arg(long, value_name = "LOCATOR", env = "SPRAT_LOCAL", global = true)]
    pub(super) local: Option<String>,

    /// Give up on an operation after this long, such as 500ms or 1m.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = quantity::operation_timeout,
        global = true
    )]
    pub(super) timeout: Duration,

    #[command(flatten)]
    identity: IdentityArgs,
}

impl Connect {
    /// Returns the client options that the flags describe, with the identity loaded from its file.
    /// The client sleeps while it waits for answers, since a command shares the machine with other
    /// processes.
    ///
    /// # Errors
    /// [`FileError`] when the identity's file cannot be read.
    pub(crate) fn options(&self) -> Result<Options, FileError> {
        Ok(Options {
            coordinator: self.coordinator.clone(),
            local: self.local.clone(),
            timeout: self.timeout,
            waiting: Mode::Sleep,
            identity: self.identity.load()?,
            ..Options::default()
        })
    }
}

/// Locator at which a coordinator listens by default.
pub(crate) const DEFAULT_COORDINATOR: &str = "tcp:host=127.0.0.1,port=11100";

/// Connects to the cluster that the flags name.
pub(crate) fn connect(args: &Connect) -> Result<Client> {
    Ok(Client::connect(&args.options()?)?)
}
