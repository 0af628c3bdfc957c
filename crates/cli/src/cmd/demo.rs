//! `demo`.

use crate::args::DemoArgs;
use anyhow::{Result, bail};
use std::process::ExitCode;

pub(crate) fn demo(_: &DemoArgs) -> Result<ExitCode> {
    bail!("in the making")
}
