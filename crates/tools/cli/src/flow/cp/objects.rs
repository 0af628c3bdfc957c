//! `cp` from and to object stores.

use crate::flow::cp::CpArgs;
use crate::flow::cp::show::Show;
use anyhow::Result;
use sprat_flow::copy::{Error, Fetch, FetchTree, Options};
use sprat_http::{Address, Cancel};
use sprat_objects::{Bucket, Location, Upload};
use std::path::Path;

/// Returns the target as a location in a bucket, or `None` if it is not one.
pub(super) fn target(args: &CpArgs) -> Result<Option<Location>> {
    let Some(text) = args.target().to_str().filter(|text| Location::is_location(text)) else {
        return Ok(None);
    };
    let to = Location::parse(text)?;
    if args.paths.len() > 2 && !to.is_folder() {
        return Err(Error::Usage(format!(
            "{to}: to send several files, DST must be a folder; end it with /"
        ))
        .into());
    }
    if args.recursive || !args.also.is_empty() {
        return Err(Error::Usage(format!(
            "{to}: objects are sent one by one; leave out -r and --also"
        ))
        .into());
    }
    Ok(Some(to))
}

/// Prepares fetching an object to the target in the arguments.
pub(super) fn fetch(
    args: &CpArgs,
    source: &str,
    options: &Options,
    cancel: &Cancel,
) -> Result<Fetch> {
    let location = Location::parse(source)?;
    if args.recursive {
        return Err(Error::Usage(format!(
            "{location}: objects are copied one by one; leave out -r"
        ))
        .into());
    }
    let bucket = Bucket::open(&location.bucket, options, cancel)?;
    Ok(Fetch::from_address(bucket.address(&location)?, args.target(), options.clone())?)
}

/// Sends a local file to a bucket.
pub(super) fn send(
    source: &str,
    to: &Location,
    options: &Options,
    cancel: &Cancel,
    show: &mut Show,
) -> Result<()> {
    if Address::is_address(source)
        || Location::is_location(source)
        || FetchTree::has_pattern(source)
    {
        let why = format!("{source}: only local files are sent to {to}; fetch it first");
        return Err(Error::Usage(why).into());
    }
    let upload = Upload::new(Path::new(source), to, options.clone(), cancel)?;
    let bucket = Bucket::open(&to.bucket, options, cancel)?;
    let sent = upload.run(&bucket, &mut |event| show.event(event))?;
    show.sent(&sent)
}
