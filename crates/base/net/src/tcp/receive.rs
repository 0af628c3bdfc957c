//! The receiving half of the TCP driver.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, Event, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

use super::conn::read;
use super::{LISTENER, MAX_CONNECTIONS, TcpTx, set_options};
use crate::driver::Sink;

/// If there are at most this many connections and none is blocked, most polls of the driver read
/// from all of them. If there are more, or one is blocked, epoll returns those that are readable.
const DIRECT: usize = 4;

/// While connections are read directly, epoll is polled for new connections once in this many
/// calls.
const LISTEN_EVERY: u32 = 16;

/// The largest number of connections that epoll returns in one call.
const EVENT_BATCH: usize = 64;

/// The largest number of connections accepted in one call.
const ACCEPT_BATCH: usize = 16;

/// The largest number of reads of one connection in one call, so that others are not kept waiting.
const READ_BATCH: usize = 4;

#[derive(Default)]
pub(crate) struct TcpRx {
    calls: u32,
}

impl TcpRx {
    /// Implements [`Driver::receive`](crate::Driver::receive) for any `holder` of the sending half.
    /// `of` returns the holder's sending half.
    pub(crate) fn receive<T>(
        &mut self,
        holder: &mut T,
        of: impl Fn(&mut T) -> &mut TcpTx,
        sink: Sink<'_, T>,
    ) -> io::Result<usize> {
        let tx = of(holder);
        self.calls = self.calls.wrapping_add(1);
        let count = tx.table.len();
        let listens = tx.listener.is_some();
        if count == 0 && !listens {
            return Ok(0);
        }
        let poll_epoll = listens && (count == 0 || self.calls.is_multiple_of(LISTEN_EVERY));
        if count > DIRECT || tx.blocked > 0 || poll_epoll {
            return receive_ready(holder, of, sink);
        }
        // A copy, because the sink may open and close connections.
        let mut slots = [0; DIRECT];
        for (position, slot) in slots[..count].iter_mut().enumerate() {
            *slot = tx.table.slot_at(position);
        }
        Ok(slots[..count].iter().map(|&slot| read_frames(slot, holder, &of, sink)).sum())
    }
}

/// Serves the connections that epoll returns.
fn receive_ready<T>(
    holder: &mut T,
    of: impl Fn(&mut T) -> &mut TcpTx,
    sink: Sink<'_, T>,
) -> io::Result<usize> {
    let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENT_BATCH];
    let events = match epoll::wait(&of(holder).epoll, &mut room, Some(&NOW)) {
        Ok((events, _)) => events,
        Err(Errno::INTR) => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    let mut frames = 0;
    for event in events {
        let (data, flags) = (event.data.u64(), event.flags);
        if data == LISTENER {
            of(holder).accept();
            continue;
        }
        let tx = of(holder);
        let slot = usize::try_from(data & u64::from(u32::MAX)).expect("slots are limited");
        let Some(conn) = tx.table.get_mut(slot) else { continue };
        // An earlier event of this batch closed the connection, and the slot was reused.
        if u64::from(conn.serial) != data >> 32 {
            continue;
        }
        if conn.blocked && flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
            if conn.connecting {
                tx.connected(slot);
            }
            tx.write(slot);
        }
        if flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
            frames += read_frames(slot, holder, &of, sink);
        }
    }
    Ok(frames)
}

const NOW: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };

/// Reads from the connection in `slot`, passes complete frames to `sink`, and returns their number.
fn read_frames<T>(
    slot: usize,
    holder: &mut T,
    of: impl Fn(&mut T) -> &mut TcpTx,
    sink: Sink<'_, T>,
) -> usize {
    let Some(conn) = of(holder).table.get_mut(slot) else { return 0 };
    let (peer, serial) = (conn.peer, conn.serial);
    // The inbox is taken out of the connection, because the sink may send over the connection or
    // close it.
    let mut inbox = std::mem::take(&mut conn.inbox);
    let mut frames = 0;
    let mut open = true;
    for _ in 0..READ_BATCH {
        let tx = of(holder);
        let Some(conn) = tx.table.get_mut(slot).filter(|conn| conn.serial == serial) else {
            return frames;
        };
        let more = read(&conn.socket, &mut inbox);
        open = more.is_some();
        while open {
            match inbox.next_frame() {
                Ok(Some(frame)) => {
                    let frame = inbox.get(frame);
                    of(holder).counters.received(frame.len());
                    sink(holder, peer, frame);
                    frames += 1;
                }
                Ok(None) => break,
                Err(_) => {
                    of(holder).counters.malformed += 1;
                    open = false;
                }
            }
        }
        // A read that does not fill the buffer has emptied the socket.
        if more != Some(true) || !open {
            break;
        }
    }
    let tx = of(holder);
    let Some(conn) = tx.table.get_mut(slot).filter(|conn| conn.serial == serial) else {
        return frames;
    };
    conn.used |= frames > 0;
    conn.inbox = inbox;
    if !open {
        tx.close(slot);
    }
    frames
}

impl TcpTx {
    /// Accepts up to [`ACCEPT_BATCH`] connections that have arrived, and closes those beyond the
    /// largest number of connections.
    fn accept(&mut self) {
        for _ in 0..ACCEPT_BATCH {
            let Some(listener) = &self.listener else { return };
            match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((socket, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    match peer {
                        Some(peer) if self.table.len() < MAX_CONNECTIONS => {
                            self.accept_from(socket, peer)
                        }
                        _ => self.counters.rejected += 1,
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // No descriptor or memory is left. The listener would stay readable, and keep
                // waking the node in vain.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    self.counters.rejected += 1;
                    return self.pause_listener();
                }
                Err(_) => self.counters.receive_errors += 1,
            }
        }
    }

    fn accept_from(&mut self, socket: OwnedFd, peer: SocketAddr) {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        // If there is a connection already, the peer has lost its side of it and uses the same
        // address again.
        if let Some(slot) = self.table.find(peer) {
            self.close(slot);
        }
        if set_options(socket.as_fd()).is_err() || self.admit(socket, peer, true).is_err() {
            self.counters.receive_errors += 1;
            return;
        }
        self.backoff.succeeded(peer);
        self.counters.accepted += 1;
    }
}
