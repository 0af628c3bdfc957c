//! `cp` to a server that accepts files.

use crate::flow::cp::CpArgs;
use crate::flow::cp::show::Show;
use anyhow::Result;
use sprat_flow::copy::{Error, FetchTree, Options, Spread, Upload, UploadTree};
use sprat_http::{Address, Cancel};
use sprat_objects::Location;
use std::path::Path;

/// Returns the target if it is a server's address.
pub(super) fn target(args: &CpArgs) -> Result<Option<&str>> {
    let Some(to) = args.target().to_str().filter(|text| Address::is_address(text)) else {
        return Ok(None);
    };
    if args.paths.len() > 2 && !to.ends_with('/') {
        let why = format!("{to}: to send several files, DST must be a folder; end it with /");
        return Err(Error::Usage(why).into());
    }
    if !args.also.is_empty() {
        return Err(Error::Usage(
            "--also applies to downloads; run the command once for each server".to_owned(),
        )
        .into());
    }
    if args.gather {
        return Err(Error::Usage(
            "--gather applies to downloads; use --spread to send pieces to servers".to_owned(),
        )
        .into());
    }
    Ok(Some(to))
}

/// Sends a local file or folder. Returns whether some files had to be left out.
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
            "{source}: only local files can be sent to {to}; fetch it first, or run this command \
             on the machine that has it"
        );
        return Err(Error::Usage(why).into());
    }
    if !args.spread.is_empty() {
        if Path::new(source).is_dir() && !args.recursive {
            return Err(
                Error::Usage(format!("{source}: is a folder; use -r to copy folders")).into()
            );
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
