//! The flags that name a cluster, and connecting to it.

use crate::meta::key::IdentityArgs;
use crate::quantity;
use anyhow::Result;
use clap::Args;
use sprat_client::{Client, FileError, Mode, Options};
use std::time::Duration;

/// The flags that name a cluster and say how to connect to it. Pages list them under a heading of
/// their own, after the command's flags.
#[derive(Args, Clone, Debug)]
pub(crate) struct Connect {
    /// Locator of the coordinator, or locators of all coordinators, separated by commas.
    #[arg(
        short = 'C',
        long,
        value_name = "LOCATOR",
        default_value = DEFAULT_COORDINATOR,
        env = "SPRAT_COORDINATOR",
        help_heading = HEADING,
        global = true
    )]
    pub(super) coordinator: String,

    /// Locator of this client, if servers use fast+dpdk: its address, port 0 and device, such as
    /// fast+dpdk:host=10.0.0.9,port=0,dev=0000:01:00.1.
    #[arg(
        long,
        value_name = "LOCATOR",
        env = "SPRAT_LOCAL",
        help_heading = HEADING,
        global = true
    )]
    pub(super) local: Option<String>,

    /// Time limit of an operation, such as 500ms; 1ms to 1d.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = quantity::operation_timeout,
        help_heading = HEADING,
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

/// Heading of these flags on the pages of commands.
pub(crate) const HEADING: &str = "Connection";

/// Locator at which a coordinator listens by default.
pub(crate) const DEFAULT_COORDINATOR: &str = "tcp:host=127.0.0.1,port=11100";

/// Connects to the cluster that the flags name.
pub(crate) fn connect(args: &Connect) -> Result<Client> {
    Ok(Client::connect(&args.options()?)?)
}
