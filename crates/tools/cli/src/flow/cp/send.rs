//! `cp` to a server that takes files.

use crate::flow::cp::CpArgs;
use crate::flow::cp::show::Show;
use anyhow::Result;
use sprat_flow::copy::{Error, FetchTree, Options, Spread, Upload, UploadTree};
use sprat_http::{Address, Cancel};
use sprat_objects::Location;
use std::path::Path;

/// The address that a copy goes to, if it goes to one.
pub(super) fn target(args: &CpArgs) -> Result<Option<&str>> {
    let Some(to) = args.target.to_str().filter(|text| Address::is_address(text)) else {
        return Ok(None);
    };
    if args.sources.len() > 1 && !to.ends_with('/') {
        let why = format!("{to}: is no folder, and several files are to go there; end it with /");
        return Err(Error::Usage(why).into());
    }
    if !args.also.is_empty() {
        return Err(Error::Usage(
            "--also is for what is fetched; send it to one host after the other".to_owned(),
        )
        .into());
    }
    if args.gather {
        return Err(Error::Usage(
            "--gather is for what is fetched; --spread sends it so".to_owned(),
        )
        .into());
    }
    Ok(Some(to))
}

/// Sends a local file, or a folder; gives whether something of it had to be left out.
pub(super) fn send(
    args: &CpArgs,
    source: &str,
    to: &str,
    options: &Options,
    cancel: &Cancel,
    show: &mut Show,
) -> Result<bool> {
    if Address::is_address(source)
        || Location::is_location(source)
        || FetchTree::has_pattern(source)
    {
        let why = format!(
            "{source}: only local files are sent to {to}; fetch it first, or run this on that machine"
        );
        return Err(Error::Usage(why).into());
    }
    if !args.spread.is_empty() {
        if Path::new(source).is_dir() && !args.recursive {
            return Err(Error::Usage(format!("{source}: is a folder; -r copies folders")).into());
        }
        let mut spread = Spread::new(Path::new(source), to, options.clone())?;
        args.spread.iter().try_for_each(|host| spread.add_host(host))?;
        spread.stop_with(cancel);
        let outcome = spread.run(&mut |event| show.event(event))?;
        show.set_done(&outcome, "at")?;
        return Ok(!outcome.tree.is_whole());
    }
    if args.recursive && Path::new(source).is_dir() {
        let mut tree = UploadTree::new(Path::new(source), to, options.clone())?;
        tree.stop_with(cancel);
        let outcome = tree.run(&mut |event| show.event(event))?;
        show.tree_done(&outcome)?;
        return Ok(!outcome.is_whole());
    }
    let mut upload = Upload::new(Path::new(source), to, options.clone())?;
    upload.stop_with(cancel);
    let outcome = upload.run(&mut |event| show.event(event))?;
    show.done(&outcome)?;
    Ok(false)
}
