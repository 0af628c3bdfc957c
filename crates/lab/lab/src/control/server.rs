//! The thread of a box that others ask.
//!
//! It does one request after the other and waits for no client: who takes no answer is asked
//! nothing more, who stalls within a request is dropped, and where there are too many, who has been
//! silent for longest goes.

use super::ControlError;
use super::connection::Connection;
use super::place::{Listening, Place};
use super::serve::Served;
use crate::engine::Handle;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most clients of a box at once; one more, and that which was silent for longest is dropped.
pub const MAX_CONNECTIONS: usize = 8;

/// How long a client may stay within a request, or leave an answer.
pub const STALL: Duration = Duration::from_secs(10);

/// How often it is looked who stalls.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A box's ear. It is deaf when dropped.
#[derive(Debug)]
pub struct Server {
    name: String,
    over: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens for those who ask the box `handle` leads to.
    ///
    /// # Errors
    /// Another box has the name, or the system refuses.
    pub fn start(place: &Place, name: &str, handle: Handle) -> Result<Self, ControlError> {
        let listening = place.listen(name)?;
        let over = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let over =
            Arc::new(over.map_err(|error| ControlError::system("an eventfd")(error.into()))?);
        let stop = Arc::new(AtomicBool::new(false));
        let served = Served::new(name, handle, stop.clone());
        let turns = {
            let over = over.clone();
            move || serve(&listening, &over, served)
        };
        let thread = std::thread::Builder::new().name("sprat-control".into()).spawn(turns);
        let thread = thread.map_err(ControlError::system("cannot start a thread"))?;
        Ok(Self { name: name.to_owned(), over, stop, thread: Some(thread) })
    }

    /// The box's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether somebody asked for the box to end. Whoever runs it looks now and then.
    #[must_use]
    pub fn stop_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.over, &1u64.to_ne_bytes()); // the first write always fits
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic of it was told where it happened
        }
    }
}

fn serve(listening: &Listening, over: &OwnedFd, mut served: Served) {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let own = [
            PollFd::from_borrowed_fd(over.as_fd(), PollFlags::IN),
            PollFd::new(&listening.listener, PollFlags::IN),
        ];
        let clients =
            connections.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), one.waits_for()));
        let mut fds: Vec<_> = own.into_iter().chain(clients).collect();
        let longest = (!connections.is_empty()).then_some(&LOOK);
        let _ = poll(&mut fds, longest); // interrupted, or there is nothing to be done about it
        let events: Vec<_> = fds.iter().map(PollFd::revents).collect();
        if !events[0].is_empty() {
            return;
        }
        let mut events_of = events[2..].iter();
        connections.retain_mut(|one| {
            let events = *events_of.next().expect("one for each");
            !one.stalls(STALL) && turn(one, events, &mut served).is_ok()
        });
        if !events[1].is_empty() && accept(listening, &mut connections).is_err() {
            // There are no descriptors, or no memory: asking again at once would only burn the
            // processor.
            let _ = poll(&mut [PollFd::from_borrowed_fd(over.as_fd(), PollFlags::IN)], Some(&LOOK));
        }
    }
}

/// Reads and writes what the socket allows, and answers the requests that came, in order. An error
/// ends the connection.
fn turn(one: &mut Connection, events: PollFlags, served: &mut Served) -> std::io::Result<()> {
    if !events.is_empty() {
        one.turn(events)?;
    }
    while let Some(request) = one.request() {
        let answer = served.answer(&request).ok_or(std::io::ErrorKind::ConnectionAborted)?;
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
            let silent =
                connections.iter().enumerate().min_by_key(|(_, one)| one.moved()).map(|(at, _)| at);
            connections.remove(silent.expect("there are some"));
        }
        connections.push(connection);
    }
}
