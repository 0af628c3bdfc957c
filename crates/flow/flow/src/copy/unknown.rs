//! A file of which nobody knows how long it is before it ends: one stream, from the beginning,
//! every time.

use super::answer::{Asked, Form, MAX_LENGTH};
use super::client::{Client, Reply};
use super::error::{Error, Trouble, fault};
use super::finish::finish;
use super::host::Found;

use super::event::{Event, Outcome, PROGRESS_INTERVAL, Progress, Served};
use super::fetch::Fetch;
use super::lane::backoff;
use super::options::buffers;
use super::sums::Summer;
use crate::file::Sink;
use crate::group::GROUP_BYTES;
use crate::partial::Partial;
use sprat_disk::Access;
use sprat_http::client::{Body, Framing};
use std::time::{Duration, Instant};

/// What has come of such a file.
struct Stream {
    summer: Summer,
    bytes: u64,
}

/// Receives the file whose first answer is in `found`.
pub(super) fn run(
    fetch: &Fetch,
    client: &Client,
    found: Found,
    tell: &mut dyn FnMut(&Event),
) -> Result<Outcome, Trouble> {
    let Found { source, attributes, reply, has_body } = found;
    let nowhere = fetch.is_for_nowhere();
    let mut sink = if nowhere {
        Sink::discard(fetch.target(), None, buffers(1))
    } else {
        fetch.place.discard().map_err(Error::from)?;
        Sink::open(fetch.place.part(), Access::Direct, None, buffers(1))?
    };
    tell(&Event::Opened {
        source: source.address.to_string(),
        target: fetch.target().to_owned(),
        length: None,
        verified: false,
        resumed: 0,
        streams: 1,
        written: sink.describe().to_owned(),
    });
    tell(&Event::Note(
        "the server does not say how long the file is: an interruption will cost all of it"
            .to_owned(),
    ));
    if matches!(reply.start.framing, Framing::Close) {
        tell(&Event::Note(
            "nor does it mark its end: that it is whole cannot be known without a sum".to_owned(),
        ));
    }
    let mut reply = Some(reply).filter(|_| has_body);
    let mut retries = 0;
    let received = loop {
        let attempt = match reply.take() {
            Some(reply) => Ok(reply),
            None => client.ask(
                &source.address,
                &Asked { form: Some(Form::Plain), ..Asked::default() },
                None,
                &fetch.cancel,
            ),
        };
        let trouble = match attempt.and_then(|reply| {
            receive(fetch, &source.address.to_string(), reply, &mut sink, retries, tell)
        }) {
            Ok(received) => break Ok(received),
            Err(trouble) => trouble,
        };
        let (why, pause) = match trouble {
            Trouble::Passing(why, pause) => (why, pause),
            Trouble::Nobody(why) => (why, None),
            other => break Err(other),
        };
        retries += 1;
        if retries > u64::from(fetch.options.retries) {
            break Err(Error::Unreachable { source_name: source.address.to_string(), why }.into());
        }
        let pause = pause.unwrap_or_else(|| backoff(u32::try_from(retries).unwrap_or(u32::MAX)));
        tell(&Event::Retry { why, pause });
        if fetch.cancel.wait(pause) {
            break Err(Error::Cancelled.into());
        }
    };
    let whole = received.and_then(|stream| {
        let (sums, came) = (&fetch.options.sums, stream.summer.finish());
        let has = match sums.any() && !nowhere {
            true => sums.of_written(&mut sink, stream.bytes, &fetch.cancel)?,
            false => came,
        };
        sums.hold(&source.address.to_string(), &has)?;
        Ok((stream.bytes, has.blake3))
    });
    let (length, blake3) = match whole {
        Ok(whole) => whole,
        Err(trouble) => {
            if !nowhere {
                let _ = fetch.place.discard(); // of no use for the next attempt
            }
            return Err(trouble);
        }
    };
    let mut state = Partial::new(sink, None);
    finish(fetch, &mut state, length, attributes, tell).inspect_err(|_| {
        if !nowhere {
            let _ = fetch.place.discard(); // as above; the error is told
        }
    })?;
    let progress = Progress {
        done: length,
        received: length,
        length: Some(length),
        retries,
        ..Progress::default()
    };
    let (target, verified) = (fetch.target().to_owned(), fetch.options.sums.any());
    let sources = vec![Served { source: source.address.to_string(), bytes: length }];
    let (blake3, time) = (Some(blake3), Duration::ZERO);
    Ok(Outcome { target, length, blake3, verified, unchanged: false, progress, sources, time })
}

fn receive(
    fetch: &Fetch,
    source_name: &str,
    reply: Reply,
    sink: &mut Sink,
    retries: u64,
    tell: &mut dyn FnMut(&Event),
) -> Result<Stream, Trouble> {
    let Reply { mut wire, start, .. } = reply;
    let mut body = Body::new(&mut wire, start.framing);
    let mut stream = Stream { summer: fetch.options.sums.summer(), bytes: 0 };
    let mut told = Instant::now();
    for group in 0.. {
        let Some(mut buffer) = sink.buffer()? else { unreachable!("nobody else has one") };
        let count = body.fill(&mut buffer).map_err(|error| fault(source_name, error))?;
        if count > 0 {
            stream.summer.add(&buffer[..count]);
            stream.bytes += count as u64;
        }
        if count == 0 {
            sink.recycle(buffer);
        } else {
            sink.write(group, buffer, count)?;
        }
        if (count as u64) < GROUP_BYTES {
            break;
        }
        if stream.bytes > MAX_LENGTH {
            return Err(Error::Protocol {
                source_name: source_name.to_owned(),
                why: "sends without end".to_owned(),
            }
            .into());
        }
        if told.elapsed() >= PROGRESS_INTERVAL {
            told = Instant::now();
            let (done, received) = (stream.bytes, stream.bytes);
            tell(&Event::Progress(Progress { done, received, retries, ..Progress::default() }));
        }
    }
    sink.take_durable();
    Ok(stream)
}
