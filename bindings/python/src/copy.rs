//! `sprat.flow.copy`.

use crate::convert::{Quantity, hex, sum};
use crate::errors::exception;
use pyo3::prelude::*;
use sprat_flow::copy::{self as mover, Event, Fetch, Options, Sums};
use sprat_http::Cancel;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Interval at which a copy checks for Ctrl-C.
const LISTEN: Duration = Duration::from_millis(50);

/// Capacity of the queue of events for the callbacks. When the queue is full, the thread that
/// reports events waits for a callback to return. The copy's other threads continue to receive.
const MAX_EVENTS: usize = 64;

/// The progress of a copy.
#[pyclass(frozen, get_all, module = "sprat.flow")]
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    done: u64,
    received: u64,
    length: Option<u64>,
    rtt: f64,
    retries: u64,
    wrong: u64,
}

#[pymethods]
impl Progress {
    fn __repr__(&self) -> String {
        let length = self.length.map_or_else(|| "None".to_owned(), |length| length.to_string());
        let Self { done, received, rtt, retries, wrong, .. } = self;
        format!(
            "Progress(done={done}, received={received}, length={length}, rtt={rtt}, \
             retries={retries}, wrong={wrong})"
        )
    }
}

impl From<mover::Progress> for Progress {
    fn from(progress: mover::Progress) -> Self {
        let mover::Progress { done, received, length, rtt, retries, wrong } = progress;
        Self { done, received, length, rtt: rtt.as_secs_f64(), retries, wrong }
    }
}

/// The result of a copy.
#[pyclass(frozen, get_all, module = "sprat.flow")]
#[derive(Debug)]
pub(crate) struct Outcome {
    target: String,
    length: u64,
    blake3: Option<String>,
    verified: bool,
    unchanged: bool,
    sources: Vec<(String, u64)>,
    progress: Py<Progress>,
    seconds: f64,
}

#[pymethods]
impl Outcome {
    fn __repr__(&self) -> String {
        let Self { target, length, seconds, .. } = self;
        let verified = if self.verified { "True" } else { "False" };
        format!(
            "Outcome(target={target:?}, length={length}, verified={verified}, seconds={seconds:.3})"
        )
    }
}

impl Outcome {
    fn new(py: Python<'_>, outcome: mover::Outcome) -> PyResult<Self> {
        Ok(Self {
            target: outcome.target.to_string_lossy().into_owned(),
            length: outcome.length,
            blake3: outcome.blake3.as_ref().map(hex),
            verified: outcome.verified,
            unchanged: outcome.unchanged,
            sources: outcome
                .sources
                .into_iter()
                .map(|served| (served.source, served.bytes))
                .collect(),
            progress: Py::new(py, Progress::from(outcome.progress))?,
            seconds: outcome.time.as_secs_f64(),
        })
    }
}

/// Copies the file at `source` (sprat://, sprats://, http://, https://, or a local path) to
/// `target`: a file name, or a directory in which the file keeps its name. The file gets its name
/// when all of it is verified and on disk. After an interruption the same call continues the copy.
///
/// - hosts: other servers with the same file, HOST[:PORT] or addresses
/// - streams: number of TCP streams
/// - verify: verify each megabyte as it arrives
/// - force: replace an existing file
/// - restart: discard the bytes of an earlier call, which are otherwise read and verified
/// - check: accepted, but has no effect any more
/// - preserve: copy permissions too
/// - limit: bytes a second, or a text such as "2Gb/s"
/// - token: identifies the caller to the source
/// - blake3, sha256: the hash that the file must have, hexadecimal
/// - cacert: file of trusted certificates (PEM)
/// - insecure: accept any certificate
/// - retries: failures in a row before giving up
/// - timeout: seconds without a byte, or a text such as "5m"
/// - receive_buffer: bytes, 0 for the kernel's choice
/// - progress: called with a Progress some ten times a second
/// - notice: called with a line of text about an event that the user may want to know
///
/// An exception that a callback raises, or KeyboardInterrupt, stops the copy, and this call raises
/// it.
#[pyfunction]
#[pyo3(signature = (
    source, target, *, hosts = Vec::new(), streams = 1, verify = true, force = false,
    restart = false, check = false, preserve = false, limit = None, token = None, blake3 = None,
    sha256 = None, cacert = None, insecure = false, retries = 10, timeout = Quantity::Whole(60),
    receive_buffer = None, progress = None, notice = None,
))]
#[expect(
    clippy::too_many_arguments,
    clippy::fn_params_excessive_bools,
    reason = "keywords, as Python has them"
)]
#[expect(clippy::needless_pass_by_value, reason = "what Python hands over is owned")]
pub(crate) fn copy(
    py: Python<'_>,
    source: &str,
    target: PathBuf,
    hosts: Vec<String>,
    streams: usize,
    verify: bool,
    force: bool,
    restart: bool,
    check: bool,
    preserve: bool,
    limit: Option<Quantity>,
    token: Option<String>,
    blake3: Option<&str>,
    sha256: Option<&str>,
    cacert: Option<PathBuf>,
    insecure: bool,
    retries: u32,
    timeout: Quantity,
    receive_buffer: Option<Quantity>,
    progress: Option<Py<PyAny>>,
    notice: Option<Py<PyAny>>,
) -> PyResult<Outcome> {
    let _ = check; // the bytes of an earlier call are always read and verified
    let defaults = Options::default();
    let options = Options {
        streams,
        retries,
        patience: timeout.timeout()?,
        receive_buffer: receive_buffer
            .map_or(Ok(defaults.receive_buffer), |bytes| bytes.bytes("receive_buffer"))?,
        force,
        restart,
        verify,
        preserve,
        limit: limit.map(Quantity::limit).transpose()?,
        sums: Sums { blake3: sum("blake3", blake3)?, sha256: sum("sha256", sha256)? },
        token,
        authorities: cacert,
        insecure,
        ..defaults
    };
    let mut copy = Fetch::new(source, &target, options).map_err(|error| exception(&error))?;
    hosts.iter().try_for_each(|host| copy.add_host(host)).map_err(|error| exception(&error))?;
    let callbacks = Callbacks { progress, notice };
    let (outcome, raised) = py.detach(|| run(&copy, &callbacks));
    match (raised, outcome) {
        // An exception that came too late to stop the copy is raised nevertheless, as Python would
        // do.
        (Some(raised), _) => Err(raised),
        (None, Ok(outcome)) => Outcome::new(py, outcome),
        (None, Err(error)) => Err(exception(&error)),
    }
}

/// The Python functions that a copy calls: `progress` for progress, `notice` for messages.
struct Callbacks {
    progress: Option<Py<PyAny>>,
    notice: Option<Py<PyAny>>,
}

/// Runs a copy without Python's lock. Returns its outcome, and the exception that a callback or a
/// signal raised.
fn run(
    copy: &Fetch,
    callbacks: &Callbacks,
) -> (Result<mover::Outcome, mover::Error>, Option<PyErr>) {
    let (events, told) = sync_channel(MAX_EVENTS);
    let cancel = copy.cancel();
    std::thread::scope(|scope| {
        let copying = scope.spawn(move || {
            copy.run(&mut |event| {
                let _ = events.send(event.clone()); // the receiver exists until this thread ends
            })
        });
        let raised = listen(&told, callbacks, &cancel);
        let outcome = copying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (outcome, raised)
    })
}

/// Passes events to the callbacks until the copy ends. If a callback or a signal's handler raises
/// an exception, stops the copy and returns the exception.
fn listen(told: &Receiver<Event>, callbacks: &Callbacks, cancel: &Cancel) -> Option<PyErr> {
    let mut raised = None;
    loop {
        let event = match told.recv_timeout(LISTEN) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return raised,
        };
        if raised.is_some() {
            continue;
        }
        let heard = Python::attach(|py| {
            py.check_signals()?;
            event.map_or(Ok(()), |event| callbacks.tell(py, &event))
        });
        if let Err(error) = heard {
            raised = Some(error);
            cancel.cancel();
        }
    }
}

impl Callbacks {
    fn tell(&self, py: Python<'_>, event: &Event) -> PyResult<()> {
        if let Event::Progress(progress) = event {
            let Some(callback) = &self.progress else { return Ok(()) };
            return callback.call1(py, (Progress::from(*progress),)).map(drop);
        }
        let (Some(callback), Some(text)) = (&self.notice, words(event)) else { return Ok(()) };
        callback.call1(py, (sprat_flow::escape_controls(&text).into_owned(),)).map(drop)
    }
}

/// Describes an event for the user. Returns `None` for events that have no message.
fn words(event: &Event) -> Option<String> {
    Some(match event {
        Event::Opened { .. } | Event::Progress(_) => return None,
        Event::Wrong { offset, bytes, times } => {
            format!(
                "{bytes} bytes at offset {offset} arrived corrupt (attempt {times}); \
                 transferring them again"
            )
        }
        Event::Retry { why, pause } => {
            format!("{why}; retrying in {:.1} s", pause.as_secs_f64())
        }
        Event::StartsOver { why } => format!("starting over: {why}"),
        Event::Checking { bytes } => format!("verifying {bytes} bytes of an earlier attempt"),
        Event::Failed { name, why } => format!("{name}: {why}"),
        Event::HostDropped { source, why } => format!("continuing without {source}: {why}"),
        Event::Note(text) => text.clone(),
    })
}
