//! One stream that fetches pieces from one host and writes their groups to their places in the
//! file.

use super::manifest::ManifestFile;
use crate::copy::answer::{FileRequest, Form};
use crate::copy::client::{Client, Reply};
use crate::copy::error::{Error, Trouble, fault};
use crate::copy::event::Event;
use crate::copy::host::RemoteFile;
use crate::copy::lane::{PIECE as SUMMED, backoff, fetch_rest};
use crate::copy::plan::GROUP_ATTEMPTS;
use crate::copy::shared::Shared;
use crate::copy::vouch::fetch_values;
use crate::group::{self, GROUP_BYTES, GroupHasher, Value};
use crate::partial::bytes_of;
use sprat_host::lock;
use sprat_http::Address;
use sprat_http::client::{Body, Wire};
use sprat_pace::path::Path;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Groups between two samples of the round-trip time.
const RTT_SAMPLE_GROUPS: u64 = 16;

/// A piece, and the runs of its groups that are missing. The groups are numbered as in the file.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    pub(super) piece: usize,
    pub(super) runs: VecDeque<Range<u64>>,
}

/// One stream to one host.
pub(super) struct PieceStream<'a> {
    pub(super) shared: &'a Shared,
    pub(super) client: &'a Client,
    /// The folder of pieces at the host.
    pub(super) host: &'a Address,
    pub(super) file: &'a ManifestFile,
    /// Pieces to fetch from the host.
    pub(super) queue: &'a Mutex<VecDeque<Missing>>,
    pub(super) retries: u32,
    /// Bytes received from the host.
    pub(super) received: &'a AtomicU64,
}

/// A piece that is being fetched.
struct Fetching {
    at: Address,
    /// The piece's range of bytes in the file.
    range: Range<u64>,
    wanted: Value,
    /// The values of the piece's groups, which yield the hash in the list; `None` until they are
    /// fetched.
    values: Option<Vec<Value>>,
    runs: VecDeque<Range<u64>>,
    /// How often groups of the piece arrived corrupt.
    wrong: u32,
}

impl Fetching {
    fn length(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns whether `value` is the value of group `within` of the piece.
    fn has(&self, within: u64, value: &Value) -> bool {
        let right = |values: &Vec<Value>| {
            usize::try_from(within).is_ok_and(|at| values.get(at) == Some(value))
        };
        self.values.as_ref().is_some_and(right)
    }
}

impl PieceStream<'_> {
    /// Fetches until the host's queue is empty.
    pub(super) fn run(&self) {
        if let Err(trouble) = self.work() {
            self.shared.fail(trouble);
        }
        self.shared.ended();
    }

    fn work(&self) -> Result<(), Trouble> {
        let mut kept = None;
        loop {
            let next = lock(self.queue).pop_front();
            let Some(Missing { piece, runs }) = next else { return Ok(()) };
            let path = format!("{}{}", self.host.path(), self.file.layout.name(piece));
            let mut fetching = Fetching {
                at: self.host.with_path(&path, None),
                range: self.file.layout.range(piece),
                wanted: self.file.pieces[piece].blake3,
                values: None,
                runs,
                wrong: 0,
            };
            let mut failures = 0;
            while !fetching.runs.is_empty() {
                let left: u64 = fetching.runs.iter().map(|run| run.end - run.start).sum();
                let had = self.begun(&fetching);
                let Err(trouble) = self.fetch(&mut fetching, &mut kept) else { continue };
                kept = None;
                let now: u64 = fetching.runs.iter().map(|run| run.end - run.start).sum();
                failures = if now < left || self.begun(&fetching) > had { 1 } else { failures + 1 };
                self.pause(failures, trouble, &fetching.at)?;
            }
        }
    }

    /// Fetches a run of a piece. Before the first run it fetches the values of the piece's groups.
    fn fetch(&self, fetching: &mut Fetching, kept: &mut Option<Wire>) -> Result<(), Trouble> {
        let (length, stop) = (fetching.length(), &self.shared.stop);
        if fetching.values.is_none() {
            let wanted = Some(&fetching.wanted);
            fetching.values =
                Some(fetch_values(self.client, &fetching.at, length, wanted, kept, stop)?);
        }
        let Some(run) = fetching.runs.front().cloned() else { return Ok(()) };
        let first = fetching.range.start / GROUP_BYTES;
        if let Some(begun) = self.shared.take_begun(run.start) {
            let right =
                self.fetch_group_rest(fetching, run.start - first, run.start, &begun, kept)?;
            return self.record_group(fetching, run.start, right);
        }
        let file_request = FileRequest {
            range: Some(
                (run.start - first) * GROUP_BYTES..length.min((run.end - first) * GROUP_BYTES),
            ),
            length: Some(length),
            form: Some(Form::Verified),
            fresh: fetching.wrong > 0,
            ..FileRequest::default()
        };
        let Reply { mut wire, head, start } =
            self.client.ask(&fetching.at, &file_request, kept.take(), stop)?;
        let mut body = Body::new(&mut wire, start.framing);
        for index in run.clone() {
            self.shared.throttle(bytes_of(self.shared.length, index));
            let right = self.group(&mut body, fetching, index - first, index)?;
            self.record_group(fetching, index, right)?;
            if index % RTT_SAMPLE_GROUPS == 1
                && let Ok(path) = Path::of(body.socket())
            {
                let rtt = if path.rtt.is_zero() { path.receive_rtt } else { path.rtt };
                self.shared
                    .counters
                    .rtt
                    .store(u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX), Relaxed);
            }
        }
        let is_over = body.is_over();
        *kept = (is_over && !head.close).then_some(wire);
        Ok(())
    }

    /// Returns how many bytes are kept of the next group.
    fn begun(&self, fetching: &Fetching) -> usize {
        fetching.runs.front().map_or(0, |run| self.shared.begun(run.start))
    }

    /// Records that the next group arrived. A corrupt group is fetched again after the other groups
    /// of the piece.
    fn record_group(
        &self,
        fetching: &mut Fetching,
        index: u64,
        right: bool,
    ) -> Result<(), Trouble> {
        let rest = fetching.runs.front_mut().expect("the run under way");
        rest.start = index + 1;
        if rest.is_empty() {
            fetching.runs.pop_front();
        }
        if right {
            return Ok(());
        }
        fetching.runs.push_back(index..index + 1);
        self.handle_corrupt(fetching, index)
    }

    /// Fetches the bytes of a group that are missing because a connection broke. Returns whether
    /// the group is intact.
    fn fetch_group_rest(
        &self,
        fetching: &Fetching,
        within: u64,
        index: u64,
        begun: &[u8],
        kept: &mut Option<Wire>,
    ) -> Result<bool, Trouble> {
        let (length, piece) = (self.shared.length, fetching.length());
        let mut buffer = self.shared.buffer()?;
        let len = usize::try_from(bytes_of(length, index)).expect("a group is in memory");
        let mut have = begun.len();
        buffer[..have].copy_from_slice(begun);
        let source = RemoteFile { address: fetching.at.clone(), verified: true, validator: None };
        let part = (&group::range(piece, within), piece);
        let stop = &self.shared.stop;
        if let Err(trouble) =
            fetch_rest(self.client, &source, part, &mut buffer[..len], &mut have, kept, stop)
        {
            self.shared.keep_begun(index, &buffer[..have]);
            self.shared.recycle(buffer);
            return Err(trouble);
        }
        let value = group::value(piece, within, &buffer[..len]);
        if !fetching.has(within, &value) {
            self.shared.recycle(buffer);
            return Ok(false);
        }
        let in_file =
            if piece == length { value } else { group::value(length, index, &buffer[..len]) };
        self.received.fetch_add(self.shared.arrived(index, buffer, in_file)?, Relaxed);
        Ok(true)
    }

    /// Receives group `within` of the piece, which is group `index` of the file. Returns whether
    /// the group is intact. The group is hashed twice: as part of the piece, to verify the group,
    /// and as part of the file, which has a different tree.
    fn group(
        &self,
        body: &mut Body<'_>,
        fetching: &Fetching,
        within: u64,
        index: u64,
    ) -> Result<bool, Trouble> {
        let (length, piece) = (self.shared.length, fetching.length());
        let mut buffer = self.shared.buffer()?;
        let len = usize::try_from(bytes_of(length, index)).expect("a group is in memory");
        let mut stated = [0; 32];
        let mut in_piece = GroupHasher::begin(piece, within);
        let mut in_file = (piece != length).then(|| GroupHasher::begin(length, index));
        for at in (0..len).step_by(SUMMED) {
            let part = &mut buffer[at..len.min(at + SUMMED)];
            let stated = if at + part.len() == len { &mut stated[..] } else { &mut [] };
            if let Err(error) = body.fill_both(part, stated) {
                self.shared.keep_begun(index, &buffer[..at + body.received()]);
                self.shared.recycle(buffer);
                return Err(fault(&fetching.at.to_string(), error));
            }
            in_piece.add(part);
            in_file.iter_mut().for_each(|hasher| hasher.add(part));
        }
        let value = in_piece.value();
        if !fetching.has(within, &value) {
            self.shared.recycle(buffer);
            return Ok(false);
        }
        let new =
            self.shared.arrived(index, buffer, in_file.map_or(value, |hasher| hasher.value()))?;
        self.received.fetch_add(new, Relaxed);
        Ok(true)
    }

    /// Counts a corrupt group. Fails after too many corrupt groups of the piece.
    fn handle_corrupt(&self, fetching: &mut Fetching, index: u64) -> Result<(), Trouble> {
        fetching.wrong += 1;
        let (offset, bytes, times) =
            (index * GROUP_BYTES, bytes_of(self.shared.length, index), fetching.wrong);
        self.shared.counters.wrong.fetch_add(1, Relaxed);
        self.shared.emit(Event::Wrong { offset, bytes, times });
        if times < GROUP_ATTEMPTS {
            return Ok(());
        }
        let why = format!(
            "{times} groups arrived corrupt, the last of them the {bytes} B at offset {offset}; \
             check the network cards and the memory of both machines"
        );
        Err(Error::Corrupt { source_name: fetching.at.to_string(), why }.into())
    }

    /// Waits before the next attempt. After too many failures gives up, because no other host has
    /// the piece.
    fn pause(&self, failures: u32, trouble: Trouble, address: &Address) -> Result<(), Trouble> {
        let (why, retry_after) = match trouble {
            Trouble::Transient(why, pause) => (why, pause),
            Trouble::Unreachable(why) => (why, None),
            other => return Err(other),
        };
        if failures > self.retries {
            return Err(Error::Unreachable { source_name: address.to_string(), why }.into());
        }
        let pause = retry_after.unwrap_or_else(|| backoff(failures));
        self.shared.counters.retries.fetch_add(1, Relaxed);
        self.shared.emit(Event::Retry { why, pause });
        if self.shared.stop.wait(pause) { Err(Error::Cancelled.into()) } else { Ok(()) }
    }
}

/// Returns the runs of a piece's groups that are missing.
pub(super) fn missing(range: &Range<u64>, is_there: impl Fn(u64) -> bool) -> VecDeque<Range<u64>> {
    let mut runs: VecDeque<Range<u64>> = VecDeque::new();
    let first = range.start / GROUP_BYTES;
    for group in
        (first..first + group::count(range.end - range.start)).filter(|group| !is_there(*group))
    {
        match runs.back_mut() {
            Some(run) if run.end == group => run.end += 1,
            _ => runs.push_back(group..group + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_groups_of_a_piece_are_fetched_in_runs() {
        let range = 4 * GROUP_BYTES..8 * GROUP_BYTES + 1;
        assert!(missing(&range, |_| false).iter().eq([&(4..9)]));
        assert_eq!(missing(&range, |group| group == 5 || group == 8), [4..5, 6..8]);
        assert!(missing(&range, |_| true).is_empty());
    }
}
