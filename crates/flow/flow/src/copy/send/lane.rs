//! One stream of an upload. It takes runs of groups, reads them, and sends each group followed by
//! its value. The server's responses say which groups arrived corrupt.

use super::ask::{Condition, ask};
use super::plan::Plan;
use super::talk::{Connection, Reply, check_accepted, request};
use crate::copy::error::{Error, Trouble};
use crate::copy::event::Event;
use crate::copy::lane::backoff;
use crate::copy::plan::GROUP_ATTEMPTS;
use crate::copy::shared::{Counters, Limit};
use crate::file::{Source, SourceError};
use crate::group::{self, GROUP_BYTES, VERIFIED, Value};
use crate::partial::bytes_of;
use sprat_host::lock;
use sprat_http::{Address, Cancel, UPLOAD};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard};

/// Limit on the requests that wait for a response. With two, the stream sends one request while the
/// server processes the previous one.
const MAX_IN_FLIGHT: usize = 2;

/// Groups between two samples of the round-trip time.
const RTT_SAMPLE_GROUPS: u64 = 16;

/// Limit on the length of the body of a response to a PUT, in bytes.
pub(in crate::copy) const MAX_ANSWER: u64 = 64 << 10;

/// A file that is being sent, as shared by its streams.
pub(super) struct Sending<'a> {
    pub(super) to: &'a Address,
    pub(super) path: &'a Path,
    pub(super) file: &'a File,
    /// Offset in the file of the first byte that is sent.
    pub(super) begin: u64,
    pub(super) length: u64,
    pub(super) tag: &'a str,
    pub(super) condition: &'a Condition,
    pub(super) retries: u32,
    pub(super) plan: Mutex<Plan>,
    /// A group that the server has in part: its index, and how many bytes of it.
    pub(super) begun: Mutex<Option<(u64, u64)>>,
    pub(super) values: Mutex<BTreeMap<u64, Value>>,
    pub(super) counters: Counters,
    pub(super) limit: Option<Mutex<Limit>>,
    pub(super) running: AtomicUsize,
    pub(super) failure: Mutex<Option<Trouble>>,
    pub(super) stop: Cancel,
    pub(super) events: SyncSender<Event>,
}

/// A run that was sent or is being sent, and was not confirmed yet.
struct InFlight {
    run: Range<u64>,
    /// The first group of the run that was not sent yet.
    next: u64,
}

impl Sending<'_> {
    /// Sends runs until none is left to take.
    pub(super) fn run_stream(&self, connection: &mut Connection<'_>) {
        if let Err(trouble) = self.work(connection) {
            let mut failure = lock(&self.failure);
            if failure.is_none()
                && !(self.stop.is_cancelled()
                    && matches!(trouble, Trouble::Fatal(Error::Cancelled)))
            {
                *failure = Some(trouble);
            }
            self.stop.cancel();
        }
        self.running.fetch_sub(1, Release);
        let _ = self.events.try_send(Event::Progress(self.counters.progress(Some(self.length))));
    }

    fn work(&self, connection: &mut Connection<'_>) -> Result<(), Trouble> {
        let mut failures = 0;
        loop {
            let (mut in_flight, mut replies) = (VecDeque::new(), 0);
            let trouble = match self.send_runs(connection, &mut in_flight, &mut replies) {
                Ok(()) => return Ok(()),
                Err(trouble) => trouble,
            };
            connection.close();
            for InFlight { run, next } in in_flight.into_iter().rev() {
                let sent: u64 = (run.start..next).map(|group| bytes_of(self.length, group)).sum();
                self.counters.done.fetch_sub(sent, Relaxed);
                self.plan().give_back(run);
            }
            failures = if replies > 0 { 1 } else { failures + 1 };
            self.pause(failures, trouble)?;
            // Some of the groups in flight may have arrived.
            match self.refresh_state(connection) {
                Ok(0) => {}
                Ok(_) => failures = 0,
                Err(Trouble::Transient(..) | Trouble::Unreachable(_)) => connection.close(),
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// Sends runs until none is left. `replies` counts the responses.
    fn send_runs(
        &self,
        connection: &mut Connection<'_>,
        in_flight: &mut VecDeque<InFlight>,
        replies: &mut u32,
    ) -> Result<(), Trouble> {
        loop {
            if self.stop.is_cancelled() {
                return Err(Error::Cancelled.into());
            }
            let Some(run) = self.plan().take() else { break };
            in_flight.push_back(InFlight { next: run.start, run });
            self.send_run(connection, in_flight, replies)?;
            if in_flight.len() == MAX_IN_FLIGHT {
                self.read_reply(connection, in_flight, replies)?;
            }
        }
        while !in_flight.is_empty() {
            self.read_reply(connection, in_flight, replies)?;
        }
        Ok(())
    }

    /// Sends the last run of `in_flight`.
    fn send_run(
        &self,
        connection: &mut Connection<'_>,
        in_flight: &mut VecDeque<InFlight>,
        replies: &mut u32,
    ) -> Result<(), Trouble> {
        let groups = in_flight.back().expect("just held").run.clone();
        let bytes = groups.start * GROUP_BYTES..self.length.min(groups.end * GROUP_BYTES);
        let begun = *lock(&self.begun);
        let have = begun.filter(|(group, _)| *group == groups.start).map_or(0, |(_, bytes)| bytes);
        let range = format!("bytes {}-{}/{}", bytes.start + have, bytes.end - 1, self.length);
        let body = (group::verified_length(&bytes) - have).to_string();
        let (name, value) = self.condition.field();
        let head = request(
            "PUT",
            self.to,
            &[
                ("Content-Type", VERIFIED),
                ("Content-Range", &range),
                ("Content-Length", &body),
                (UPLOAD, self.tag),
                (name, value),
            ],
        );
        let again = self.file.try_clone().map_err(|error| Error::file(self.path, error))?;
        let mut source =
            Source::new(again, self.path, self.begin + bytes.start..self.begin + bytes.end);
        connection.open(self.to)?;
        self.send(connection, &[head.as_bytes()], in_flight, replies)?;
        let mut have = usize::try_from(have).expect("within a group");
        for index in groups {
            self.throttle(bytes_of(self.length, index) - have as u64);
            let block = source.next_block().map_err(|error| match error {
                SourceError::Short { .. } => Trouble::Changed(error.to_string()),
                SourceError::Io { path, source, .. } => Error::file(path, source).into(),
            })?;
            let block = block.expect("a block for each group");
            let value = group::value(self.length, index, block);
            lock(&self.values).insert(index, value);
            self.send(
                connection,
                &[&block[std::mem::take(&mut have)..], &value],
                in_flight,
                replies,
            )?;
            in_flight.back_mut().expect("being sent").next = index + 1;
            self.counters.done.fetch_add(block.len() as u64, Relaxed);
            self.counters.received.fetch_add(block.len() as u64, Relaxed);
            if index % RTT_SAMPLE_GROUPS == 1
                && let Some(path) = connection.path()
            {
                self.counters
                    .rtt
                    .store(u64::try_from(path.rtt.as_micros()).unwrap_or(u64::MAX), Relaxed);
            }
        }
        Ok(())
    }

    /// Sends bytes of the last run of `in_flight`. Meanwhile a response to the previous run may
    /// arrive.
    fn send(
        &self,
        connection: &mut Connection<'_>,
        parts: &[&[u8]],
        in_flight: &mut VecDeque<InFlight>,
        replies: &mut u32,
    ) -> Result<(), Trouble> {
        let all: usize = parts.iter().map(|part| part.len()).sum();
        let mut done = 0;
        loop {
            done = connection.send_parts(self.to, parts, done)?;
            if done == all {
                return Ok(());
            }
            if in_flight.len() < MAX_IN_FLIGHT {
                let reply = check_accepted(self.to, connection.answer(self.to, MAX_ANSWER)?)?;
                let why =
                    format!("it answered {} before it received everything", reply.head.status);
                return Err(Trouble::Transient(why, None));
            }
            self.read_reply(connection, in_flight, replies)?;
        }
    }

    /// Reads the response to the first run of `in_flight`.
    fn read_reply(
        &self,
        connection: &mut Connection<'_>,
        in_flight: &mut VecDeque<InFlight>,
        replies: &mut u32,
    ) -> Result<(), Trouble> {
        let Reply { head, .. } = check_accepted(self.to, connection.answer(self.to, MAX_ANSWER)?)?;
        let Some(InFlight { run, .. }) = in_flight.pop_front() else { return Ok(()) };
        *replies += 1;
        for group in head.wrong {
            if !run.contains(&group) {
                let why = format!("reports group {group} as corrupt, which was not sent");
                return Err(Error::Protocol { source_name: self.to.to_string(), why }.into());
            }
            let (offset, bytes) = (group * GROUP_BYTES, bytes_of(self.length, group));
            self.counters.wrong.fetch_add(1, Relaxed);
            self.counters.done.fetch_sub(bytes, Relaxed);
            lock(&self.begun).take_if(|(begun, _)| *begun == group);
            let times = self.plan().mark_corrupt(group);
            let _ = self.events.try_send(Event::Wrong { offset, bytes, times });
            if times >= GROUP_ATTEMPTS {
                let why = format!(
                    "the {bytes} B at offset {offset} arrived corrupt {times} times; check the \
                     network cards and the memory of both machines"
                );
                return Err(Error::Corrupt { source_name: self.to.to_string(), why }.into());
            }
        }
        Ok(())
    }

    /// Queries which groups have arrived. Returns how many of them are new, counting a partial
    /// group as one.
    fn refresh_state(&self, connection: &mut Connection<'_>) -> Result<usize, Trouble> {
        let state = ask(connection, self.to, self.tag, self.length)?;
        let gone = self.plan().without(&state.groups);
        let bytes: u64 = gone.iter().map(|group| bytes_of(self.length, *group)).sum();
        self.counters.done.fetch_add(bytes, Relaxed);
        let mut values = lock(&self.values);
        for (group, value) in state.groups {
            values.entry(group).or_insert(value);
        }
        let had = std::mem::replace(&mut *lock(&self.begun), state.begun);
        let more = state.begun.is_some() && state.begun != had;
        Ok(gone.len() + usize::from(more))
    }

    /// Waits before the next attempt. Gives up after too many failures, or if another attempt would
    /// fail too.
    fn pause(&self, failures: u32, trouble: Trouble) -> Result<(), Trouble> {
        let (why, retry_after) = match trouble {
            Trouble::Transient(why, pause) => (why, pause),
            Trouble::Unreachable(why) => (why, None),
            other => return Err(other),
        };
        if failures > self.retries {
            return Err(Error::Unreachable { source_name: self.to.to_string(), why }.into());
        }
        let pause = retry_after.unwrap_or_else(|| backoff(failures));
        self.counters.retries.fetch_add(1, Relaxed);
        let _ = self.events.try_send(Event::Retry { why, pause });
        if self.stop.wait(pause) { Err(Error::Cancelled.into()) } else { Ok(()) }
    }

    /// Waits until the rate limit allows `bytes` more.
    fn throttle(&self, bytes: u64) {
        if let Some(limit) = &self.limit {
            let pause = lock(limit).take(bytes);
            self.stop.wait(pause);
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        lock(&self.plan)
    }
}
