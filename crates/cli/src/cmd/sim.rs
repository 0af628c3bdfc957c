//! `sim`.

use crate::args::SimArgs;
use anyhow::{Result, bail};
use std::process::ExitCode;

pub(crate) fn sim(_: &SimArgs) -> Result<ExitCode> {
    bail!("in the making")
}
