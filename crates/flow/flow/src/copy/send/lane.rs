//! One stream that sends: takes runs of groups, reads them, tells the value of each behind it, and
//! hears what arrived.

use super::ask::{Condition, ask};
use super::plan::Plan;
use super::talk::{Line, Reply, request, taken};
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

/// Requests whose answers have not come, at most: the next is sent while the one before is
/// answered.
const MAX_HELD: usize = 2;

/// Groups between two looks at the round-trip time.
const LOOK: u64 = 16;

/// Most bytes of an answer to a part.
pub(in crate::copy) const MAX_ANSWER: u64 = 64 << 10;

/// A file that is being sent, as its streams see it.
pub(super) struct Sending<'a> {
    pub(super) to: &'a Address,
    pub(super) path: &'a Path,
    pub(super) file: &'a File,
    /// The first of its bytes that are sent, and how many.
    pub(super) begin: u64,
    pub(super) length: u64,
    pub(super) tag: &'a str,
    pub(super) condition: &'a Condition,
    pub(super) retries: u32,
    pub(super) plan: Mutex<Plan>,
    /// A group of which a beginning has come, and how many bytes.
    pub(super) begun: Mutex<Option<(u64, u64)>>,
    pub(super) values: Mutex<BTreeMap<u64, Value>>,
    pub(super) counters: Counters,
    pub(super) limit: Option<Mutex<Limit>>,
    pub(super) running: AtomicUsize,
    pub(super) failure: Mutex<Option<Trouble>>,
    pub(super) stop: Cancel,
    pub(super) events: SyncSender<Event>,
}

/// A run that was sent, or is being sent, and of which nothing was heard yet.
struct Held {
    run: Range<u64>,
    /// The first of its groups that was not sent.
    next: u64,
}

impl Sending<'_> {
    /// Works until nothing is left that nobody sends.
    pub(super) fn lane(&self, line: &mut Line<'_>) {
        if let Err(trouble) = self.work(line) {
            let mut failure = lock(&self.failure);
            if failure.is_none()
                && !(self.stop.is_asked() && matches!(trouble, Trouble::Fatal(Error::Cancelled)))
            {
                *failure = Some(trouble);
            }
            self.stop.ask();
        }
        self.running.fetch_sub(1, Release);
        let _ = self.events.try_send(Event::Progress(self.counters.progress(Some(self.length))));
    }

    fn work(&self, line: &mut Line<'_>) -> Result<(), Trouble> {
        let mut failures = 0;
        loop {
            let (mut held, mut heard) = (VecDeque::new(), 0);
            let trouble = match self.stream(line, &mut held, &mut heard) {
                Ok(()) => return Ok(()),
                Err(trouble) => trouble,
            };
            line.close();
            for Held { run, next } in held.into_iter().rev() {
                let sent: u64 = (run.start..next).map(|group| bytes_of(self.length, group)).sum();
                self.counters.done.fetch_sub(sent, Relaxed);
                self.plan().give_back(run);
            }
            failures = if heard > 0 { 1 } else { failures + 1 };
            self.pause(failures, trouble)?;
            // Of what was under way some has arrived.
            match self.there(line) {
                Ok(0) => {}
                Ok(_) => failures = 0,
                Err(Trouble::Passing(..) | Trouble::Nobody(_)) => line.close(),
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// Sends runs until there is none; `heard` counts answers.
    fn stream(
        &self,
        line: &mut Line<'_>,
        held: &mut VecDeque<Held>,
        heard: &mut u32,
    ) -> Result<(), Trouble> {
        loop {
            if self.stop.is_asked() {
                return Err(Error::Cancelled.into());
            }
            let Some(run) = self.plan().take() else { break };
            held.push_back(Held { next: run.start, run });
            self.run(line, held, heard)?;
            if held.len() == MAX_HELD {
                self.hear(line, held, heard)?;
            }
        }
        while !held.is_empty() {
            self.hear(line, held, heard)?;
        }
        Ok(())
    }

    /// Sends the run that was held last.
    fn run(
        &self,
        line: &mut Line<'_>,
        held: &mut VecDeque<Held>,
        heard: &mut u32,
    ) -> Result<(), Trouble> {
        let groups = held.back().expect("just held").run.clone();
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
        line.open(self.to)?;
        self.send(line, &[head.as_bytes()], held, heard)?;
        let mut have = usize::try_from(have).expect("within a group");
        for index in groups {
            self.hold_back(bytes_of(self.length, index) - have as u64);
            let block = source.next_block().map_err(|error| match error {
                SourceError::Short { .. } => Trouble::Changed(error.to_string()),
                SourceError::Io { path, source, .. } => Error::file(path, source).into(),
            })?;
            let block = block.expect("a block for each group");
            let value = group::value(self.length, index, block);
            lock(&self.values).insert(index, value);
            self.send(line, &[&block[std::mem::take(&mut have)..], &value], held, heard)?;
            held.back_mut().expect("being sent").next = index + 1;
            self.counters.done.fetch_add(block.len() as u64, Relaxed);
            self.counters.received.fetch_add(block.len() as u64, Relaxed);
            if index % LOOK == 1
                && let Some(path) = line.path()
            {
                self.counters
                    .rtt
                    .store(u64::try_from(path.rtt.as_micros()).unwrap_or(u64::MAX), Relaxed);
            }
        }
        Ok(())
    }

    /// Sends bytes of the run that was held last. Meanwhile the one before may be answered.
    fn send(
        &self,
        line: &mut Line<'_>,
        parts: &[&[u8]],
        held: &mut VecDeque<Held>,
        heard: &mut u32,
    ) -> Result<(), Trouble> {
        let all: usize = parts.iter().map(|part| part.len()).sum();
        let mut done = 0;
        loop {
            done = line.pass(self.to, parts, done)?;
            if done == all {
                return Ok(());
            }
            if held.len() < MAX_HELD {
                let reply = taken(self.to, line.answer(self.to, MAX_ANSWER)?)?;
                let why = format!("it answers {} before it has everything", reply.head.status);
                return Err(Trouble::Passing(why, None));
            }
            self.hear(line, held, heard)?;
        }
    }

    /// Hears what became of the run that was held first.
    fn hear(
        &self,
        line: &mut Line<'_>,
        held: &mut VecDeque<Held>,
        heard: &mut u32,
    ) -> Result<(), Trouble> {
        let Reply { head, .. } = taken(self.to, line.answer(self.to, MAX_ANSWER)?)?;
        let Some(Held { run, .. }) = held.pop_front() else { return Ok(()) };
        *heard += 1;
        for group in head.wrong {
            if !run.contains(&group) {
                let why = format!("says that group {group} arrived wrong, which was not sent");
                return Err(Error::Protocol { source_name: self.to.to_string(), why }.into());
            }
            let (offset, bytes) = (group * GROUP_BYTES, bytes_of(self.length, group));
            self.counters.wrong.fetch_add(1, Relaxed);
            self.counters.done.fetch_sub(bytes, Relaxed);
            lock(&self.begun).take_if(|(begun, _)| *begun == group);
            let times = self.plan().wrong(group);
            let _ = self.events.try_send(Event::Wrong { offset, bytes, times });
            if times >= GROUP_ATTEMPTS {
                let why = format!(
                    "the {bytes} B at {offset} arrive wrong, {times} times now; look at the network cards and the memory between here and there"
                );
                return Err(Error::Corrupt { source_name: self.to.to_string(), why }.into());
            }
        }
        Ok(())
    }

    /// Asks what has arrived; gives how many groups have of which that was not known, the beginning
    /// of one counted too.
    fn there(&self, line: &mut Line<'_>) -> Result<usize, Trouble> {
        let told = ask(line, self.to, self.tag, self.length)?;
        let gone = self.plan().without(&told.groups);
        let bytes: u64 = gone.iter().map(|group| bytes_of(self.length, *group)).sum();
        self.counters.done.fetch_add(bytes, Relaxed);
        let mut values = lock(&self.values);
        for (group, value) in told.groups {
            values.entry(group).or_insert(value);
        }
        let had = std::mem::replace(&mut *lock(&self.begun), told.begun);
        let more = told.begun.is_some() && told.begun != had;
        Ok(gone.len() + usize::from(more))
    }

    /// Waits before the next attempt, or gives up.
    fn pause(&self, failures: u32, trouble: Trouble) -> Result<(), Trouble> {
        let (why, asked) = match trouble {
            Trouble::Passing(why, pause) => (why, pause),
            Trouble::Nobody(why) => (why, None),
            other => return Err(other),
        };
        if failures > self.retries {
            return Err(Error::Unreachable { source_name: self.to.to_string(), why }.into());
        }
        let pause = asked.unwrap_or_else(|| backoff(failures));
        self.counters.retries.fetch_add(1, Relaxed);
        let _ = self.events.try_send(Event::Retry { why, pause });
        if self.stop.wait(pause) { Err(Error::Cancelled.into()) } else { Ok(()) }
    }

    /// Waits as the limit of the rate asks.
    fn hold_back(&self, bytes: u64) {
        if let Some(limit) = &self.limit {
            let pause = lock(limit).take(bytes);
            self.stop.wait(pause);
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        lock(&self.plan)
    }
}
