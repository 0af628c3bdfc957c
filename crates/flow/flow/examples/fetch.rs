//! The smallest program that copies a file and measures the cost: `fetch SRC DST [STREAMS]`. With
//! `fetch --share DIR ADDRESS` it serves a directory.
//!
//! The last line of a copy shows its rate, and the processor time for each gigabyte (user and
//! system), as `getrusage` counts it.
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use sprat_flow::copy::{Event, Fetch, Options};
use sprat_flow::share::{self, Share};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--share", directory, address] => {
            let share =
                Share::start(share::Options::new(directory.into(), vec![address.parse()?]))?;
            println!("{:?}", share.addresses());
            loop {
                std::thread::park();
            }
        }
        [source, target, ref rest @ ..] => {
            let streams = rest.first().map_or(Ok(1), |text| text.parse())?;
            let options = Options { streams, force: true, ..Options::default() };
            let copied = Fetch::new(source, target.as_ref(), options)?.run(&mut |event| {
                if !matches!(event, Event::Progress(_)) {
                    println!("{event:?}");
                }
            })?;
            let usage = getrusage(UsageWho::RUSAGE_SELF)?;
            #[expect(clippy::cast_precision_loss, reason = "to be read by people")]
            let gigabytes = copied.length as f64 / 1e9;
            let seconds = |time: nix::sys::time::TimeVal| {
                f64::from(i32::try_from(time.num_milliseconds()).unwrap_or(i32::MAX)) / 1e3
            };
            println!(
                "{:.2} Gb/s, {:.3} + {:.3} s of processor for a gigabyte",
                gigabytes * 8.0 / copied.time.as_secs_f64(),
                seconds(usage.user_time()) / gigabytes,
                seconds(usage.system_time()) / gigabytes,
            );
            Ok(())
        }
        _ => Err("fetch SRC DST [STREAMS], or fetch --share DIR ADDRESS".into()),
    }
}
