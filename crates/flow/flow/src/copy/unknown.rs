//! Fetches a file whose length is unknown until it ends. One stream fetches the file, and each
//! attempt starts from the beginning.

use super::answer::{FileRequest, Form, MAX_LENGTH};
use super::client::{Client, Reply};
use super::error::{Error, Trouble, fault};
use super::finish::finish;
use super::host::OpenedFile;

use super::event::{Event, Outcome, PROGRESS_INTERVAL, Progress, Served};
use super::fetch::Fetch;
use super::lane::backoff;
use super::options::buffers;
use super::sums::FileHasher;
use crate::file::Sink;
use crate::group::GROUP_BYTES;
use crate::partial::Partial;
use sprat_disk::Access;
use sprat_http::client::{Body, Framing};
use std::time::{Duration, Instant};

/// The sums and the number of the bytes that were received of a file of unknown length.
struct Received {
    hasher: FileHasher,
    bytes: u64,
}

/// Receives the file whose first response is in `found`.
pub(super) fn run(
    fetch: &Fetch,
    client: &Client,
    found: OpenedFile,
    report: &mut dyn FnMut(&Event),
) -> Result<Outcome, Trouble> {
    let OpenedFile { source, attributes, reply, has_body } = found;
    let nowhere = fetch.is_discarding();
    let mut sink = if nowhere {
        Sink::discard(fetch.target(), None, buffers(1))
    } else {
        fetch.destination.discard().map_err(Error::from)?;
        Sink::open(fetch.destination.part(), Access::Direct, None, buffers(1))?
    };
    report(&Event::Opened {
        source: source.address.to_string(),
        target: fetch.target().to_owned(),
        length: None,
        verified: false,
        resumed: 0,
        streams: 1,
        written: sink.describe().to_owned(),
    });
    report(&Event::Note(
        "the server does not state the file's length: an interrupted transfer starts from the \
         beginning"
            .to_owned(),
    ));
    if matches!(reply.start.framing, Framing::Close) {
        report(&Event::Note(
            "the server does not mark the end of the file either: give a sum to detect a \
             truncated file"
                .to_owned(),
        ));
    }
    let mut reply = Some(reply).filter(|_| has_body);
    let mut retries = 0;
    let received = loop {
        let attempt = match reply.take() {
            Some(reply) => Ok(reply),
            None => client.ask(
                &source.address,
                &FileRequest { form: Some(Form::Plain), ..FileRequest::default() },
                None,
                &fetch.cancel,
            ),
        };
        let trouble = match attempt.and_then(|reply| {
            receive(fetch, &source.address.to_string(), reply, &mut sink, retries, report)
        }) {
            Ok(received) => break Ok(received),
            Err(trouble) => trouble,
        };
        let (why, pause) = match trouble {
            Trouble::Transient(why, pause) => (why, pause),
            Trouble::Unreachable(why) => (why, None),
            other => break Err(other),
        };
        retries += 1;
        if retries > u64::from(fetch.options.retries) {
            break Err(Error::Unreachable { source_name: source.address.to_string(), why }.into());
        }
        let pause = pause.unwrap_or_else(|| backoff(u32::try_from(retries).unwrap_or(u32::MAX)));
        report(&Event::Retry { why, pause });
        if fetch.cancel.wait(pause) {
            break Err(Error::Cancelled.into());
        }
    };
    let whole = received.and_then(|received| {
        let (sums, received_sums) = (&fetch.options.sums, received.hasher.finish());
        let has = match sums.any() && !nowhere {
            true => sums.hash_written(&mut sink, received.bytes, &fetch.cancel)?,
            false => received_sums,
        };
        sums.check(&source.address.to_string(), &has)?;
        Ok((received.bytes, has.blake3))
    });
    let (length, blake3) = match whole {
        Ok(whole) => whole,
        Err(trouble) => {
            if !nowhere {
                let _ = fetch.destination.discard(); // the part cannot be resumed
            }
            return Err(trouble);
        }
    };
    let mut state = Partial::new(sink, None);
    finish(fetch, &mut state, length, attributes, report).inspect_err(|_| {
        if !nowhere {
            let _ = fetch.destination.discard(); // the part cannot be resumed
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
    report: &mut dyn FnMut(&Event),
) -> Result<Received, Trouble> {
    let Reply { mut wire, start, .. } = reply;
    let mut body = Body::new(&mut wire, start.framing);
    let mut received = Received { hasher: fetch.options.sums.hasher(), bytes: 0 };
    let mut last_report = Instant::now();
    for group in 0.. {
        let Some(mut buffer) = sink.buffer()? else { unreachable!("no other buffer is in use") };
        let count = body.fill(&mut buffer).map_err(|error| fault(source_name, error))?;
        if count > 0 {
            received.hasher.add(&buffer[..count]);
            received.bytes += count as u64;
        }
        if count == 0 {
            sink.recycle(buffer);
        } else {
            sink.write(group, buffer, count)?;
        }
        if (count as u64) < GROUP_BYTES {
            break;
        }
        if received.bytes > MAX_LENGTH {
            return Err(Error::Protocol {
                source_name: source_name.to_owned(),
                why: "sent more than the largest possible file".to_owned(),
            }
            .into());
        }
        if last_report.elapsed() >= PROGRESS_INTERVAL {
            last_report = Instant::now();
            let (done, received) = (received.bytes, received.bytes);
            report(&Event::Progress(Progress { done, received, retries, ..Progress::default() }));
        }
    }
    sink.take_durable();
    Ok(received)
}
