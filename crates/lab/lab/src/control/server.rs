//! The thread that serves a box's control socket.
//!
//! The thread handles one request after the other and never waits for a client. A client that does
//! not read its answer gets no further answer. A client that stalls within a request or an answer
//! is dropped. If there are too many clients, the one that was silent for longest is dropped.

use super::ControlError;
use super::connection::Connection;
use super::place::{ControlDir, Listening};
use super::serve::RequestHandler;
use crate::engine::EngineHandle;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Limit on the clients of a box at the same time. If one more connects, the client that was silent
/// for longest is dropped.
pub const MAX_CONNECTIONS: usize = 8;

/// Limit on the time without progress within a request, or while an answer is sent. A client that
/// exceeds it is dropped.
pub const STALL: Duration = Duration::from_secs(10);

/// Interval at which the server looks for stalled clients.
const STALL_CHECK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The control socket of a box, served by a thread. Dropping it closes the socket and ends the
/// thread. The server cannot stop the box itself, so the caller must poll
/// [`stop_requested`](Self::stop_requested).
#[derive(Debug)]
pub struct Server {
    name: String,
    done: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the socket of the box that `handle` refers to, and starts serving it.
    ///
    /// # Errors
    /// The name is invalid, or a running box has it. Other users can access the directory. The
    /// system cannot make the directory, the socket, an eventfd or a thread.
    pub fn start(dir: &ControlDir, name: &str, handle: EngineHandle) -> Result<Self, ControlError> {
        let listening = dir.listen(name)?;
        let done = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let done =
            Arc::new(done.map_err(|error| ControlError::system("an eventfd")(error.into()))?);
        let stop = Arc::new(AtomicBool::new(false));
        let handler = RequestHandler::new(name, handle, stop.clone());
        let run = {
            let done = done.clone();
            move || serve(&listening, &done, handler)
        };
        let thread = std::thread::Builder::new().name("sprat-control".into()).spawn(run);
        let thread = thread.map_err(ControlError::system("cannot start a thread"))?;
        Ok(Self { name: name.to_owned(), done, stop, thread: Some(thread) })
    }

    /// Returns the box's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether a client has asked for the box to stop. The process that runs the box polls
    /// this.
    #[must_use]
    pub fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.done, &1u64.to_ne_bytes()); // the first write always fits
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its panic was reported when it happened
        }
    }
}

fn serve(listening: &Listening, done: &OwnedFd, mut handler: RequestHandler) {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let own = [
            PollFd::from_borrowed_fd(done.as_fd(), PollFlags::IN),
            PollFd::new(&listening.listener, PollFlags::IN),
        ];
        let clients =
            connections.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), one.poll_events()));
        let mut fds: Vec<_> = own.into_iter().chain(clients).collect();
        let longest = (!connections.is_empty()).then_some(&STALL_CHECK);
        let _ = poll(&mut fds, longest); // an error is handled as no events
        let events: Vec<_> = fds.iter().map(PollFd::revents).collect();
        if !events[0].is_empty() {
            return;
        }
        let mut events_of = events[2..].iter();
        connections.retain_mut(|one| {
            let events = *events_of.next().expect("one for each");
            !one.is_stalled(STALL) && handle(one, events, &mut handler).is_ok()
        });
        if !events[1].is_empty() && accept(listening, &mut connections).is_err() {
            // Descriptors or memory are exhausted. To try again immediately would only waste
            // processor time.
            let _ = poll(
                &mut [PollFd::from_borrowed_fd(done.as_fd(), PollFlags::IN)],
                Some(&STALL_CHECK),
            );
        }
    }
}

/// Reads and writes what the socket allows, and answers the requests that have arrived, in order.
/// The caller drops the connection after an error.
fn handle(
    one: &mut Connection,
    events: PollFlags,
    handler: &mut RequestHandler,
) -> std::io::Result<()> {
    if !events.is_empty() {
        one.transfer(events)?;
    }
    while let Some(request) = one.request() {
        let answer = handler.answer(&request).ok_or(std::io::ErrorKind::ConnectionAborted)?;
        one.answer(answer)?;
    }
    Ok(())
}

fn accept(listening: &Listening, connections: &mut Vec<Connection>) -> std::io::Result<()> {
    loop {
        let connection = match listening.listener.accept() {
            Ok((stream, _)) => Connection::new(stream)?,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        if connections.len() == MAX_CONNECTIONS {
            let silent = connections
                .iter()
                .enumerate()
                .min_by_key(|(_, one)| one.active_at())
                .map(|(at, _)| at);
            connections.remove(silent.expect("there are some"));
        }
        connections.push(connection);
    }
}
