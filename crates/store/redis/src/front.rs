//! The connections of clients, and which of them has its turn.

use crate::call::{Call, Failure, MAX_REPLY, NO_TABLE, try_again};
use crate::channels::Message;
use crate::commands;
use crate::connection::{Connection, Pause, Unfinished};
use crate::objects::{Objects, Unready};
use crate::session::{Server, Session, TableRequest, TableRequests};
use crate::sweep::Swept;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use sprat_net::Nanos;
use sprat_resp::{Limits, Next, ReplyWriter};
use sprat_wire::{MAX_KEY, MAX_VALUE};
use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Limit on the number of connections. A further client gets an error.
pub const MAX_CONNECTIONS: usize = 10_000;

/// What a command may have: a value is at most as long as the store's longest, and all parts
/// together have 16 MiB.
pub const COMMAND_LIMITS: Limits =
    Limits { part: MAX_VALUE, command: 16 << 20, parts: sprat_resp::MAX_PARTS };
const _: () = assert!(MAX_KEY <= COMMAND_LIMITS.part);

/// What a command may have while its client is not authenticated.
const UNAUTHENTICATED_LIMITS: Limits = Limits { part: 16 << 10, command: 64 << 10, parts: 10 };

/// Bytes of replies that a client has not taken, above which no command of it is executed.
const MAX_UNSENT: usize = 1 << 20;

/// Bytes of messages and replies that a subscriber has not taken, above which it is disconnected.
const MAX_UNREAD: usize = 8 << 20;

/// Bytes of memory that all connections may hold. While they hold more, commands are executed only
/// for clients that have taken all replies, and received only from those that hold little; and
/// replies of several keys or values are short.
const MAX_HELD: usize = 512 << 20;

/// Bytes of memory that count as little.
const LITTLE_HELD: usize = 16 << 10;

/// How long a client may leave replies in the socket. It is disconnected then: their memory is
/// needed for others.
const MAX_STALL: Duration = Duration::from_secs(60);

/// How often such clients are looked for.
const STALL_INTERVAL: Duration = Duration::from_secs(5);

/// The largest number of commands of a client in its turn.
const COMMANDS_AT_ONCE: usize = 256;

/// The largest number of commands of all clients in one iteration of the loop, and of a client in
/// its turn more. Then the log is written, and requests of the store's own clients are executed.
const COMMANDS_IN_ITERATION: usize = 1024;

/// Bytes that a client's turn receives.
const RECEIVED: usize = 64 << 10;

/// The largest number of connections that are accepted in one iteration.
const ACCEPTED_AT_ONCE: usize = 64;

/// Pause after the system could not accept a connection, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Shortest time between two warnings of that.
const WARN_INTERVAL: Duration = Duration::from_secs(5);

/// The largest number of events in one iteration.
const EVENTS: usize = 128;

/// How often the kernel is asked for events while the loop spins. A request over TCP takes ten
/// times as long; the server's own clients would wait for the system call.
const EVENT_INTERVAL: Duration = Duration::from_micros(4);

/// How often the front asks for collections that are gone.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// Pause after their elements could not be removed.
const SWEEP_PAUSE: Duration = Duration::from_millis(20);

/// Pause before a command is executed again for which the server was not ready.
const RETRY: Duration = Duration::from_micros(500);

/// How long a command waits for the server to become ready.
const PATIENCE: Duration = Duration::from_secs(5);

/// The event of the listening socket; the others have the numbers of their slots.
const LISTENER: u64 = u64::MAX;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The connections of Redis clients to a server.
///
/// The loop of a node calls [`turn`](Self::turn) in each iteration, and then, once it has moved the
/// log's durable position, [`send`](Self::send). It sleeps no longer than until
/// [`next_deadline`](Self::next_deadline), and wakes when [`fd`](Self::fd) becomes readable.
#[derive(Debug)]
pub struct Front {
    listener: TcpListener,
    epoll: OwnedFd,
    server: Server,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    /// Connections that have their turn in this iteration.
    ready: VecDeque<usize>,
    /// Connections whose turn comes at a time.
    later: Vec<(Nanos, usize)>,
    /// Connections with replies that wait for a log position, in the order of the positions.
    waiting: VecDeque<(u64, usize)>,
    /// Connections with replies that need not wait.
    sendable: Vec<usize>,
    /// Bytes of memory that all connections hold.
    held: usize,
    next_id: u64,
    events_at: Nanos,
    stalls_at: Nanos,
    sweep_at: Nanos,
    /// Until when no connection is accepted.
    pause: Option<Nanos>,
    warn_at: Nanos,
    drains: bool,
    buffer: Box<[u8]>,
}

impl Front {
    /// Listens for clients at an address. The tables of databases are requested when they are first
    /// used. `seed` is for random choices. If there is a password, clients must authenticate with
    /// it.
    ///
    /// # Errors
    /// The system refuses to listen there.
    pub fn listen(
        address: SocketAddr,
        requests: TableRequests,
        seed: u64,
        password: Option<&[u8]>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let data = EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, EventFlags::IN)?;
        let port = listener.local_addr()?.port();
        Ok(Self {
            listener,
            epoll,
            server: Server::new(port, requests, seed, password),
            connections: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            later: Vec::new(),
            waiting: VecDeque::new(),
            sendable: Vec::new(),
            held: 0,
            next_id: 1,
            events_at: Nanos(0),
            stalls_at: Nanos(0),
            sweep_at: Nanos(0),
            pause: None,
            warn_at: Nanos(0),
            drains: false,
            buffer: vec![0; RECEIVED].into(),
        })
    }

    /// Returns the address at which clients reach the server.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the descriptor that becomes readable when [`turn`](Self::turn) has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns when [`turn`](Self::turn) has something to do even if nothing arrives.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let later = self.later.iter().map(|(again, _)| *again);
        let stalls = (self.server.connections > 0).then_some(self.stalls_at);
        let waits = self.server.waiting.deadline();
        let ready = (!self.ready.is_empty()).then_some(Nanos(0));
        later.chain(stalls).chain(waits).chain(self.pause).chain(ready).chain([self.sweep_at]).min()
    }

    /// Answers a request for the table of a database. A database that was to become empty may have
    /// none.
    pub fn set_table(&mut self, request: TableRequest, table: Option<u32>) {
        self.server.set_table(request, table);
    }

    /// Takes no more connections and no more commands.
    pub fn drain(&mut self) {
        self.drains = true;
        self.ready.clear();
    }

    /// Returns whether no reply has still to be sent.
    pub fn is_idle(&self) -> bool {
        self.connections.iter().flatten().all(|connection| connection.unsent() == 0)
    }

    /// Takes what clients have sent, and executes their commands; returns whether there was any.
    pub fn turn(&mut self, now: Nanos, objects: &mut dyn Objects) -> bool {
        if self.drains {
            return false;
        }
        let mut worked = false;
        if now >= self.events_at && self.ready.is_empty() {
            self.events_at = now + EVENT_INTERVAL;
            worked |= self.events(now);
        }
        let ready = &mut self.ready;
        self.later.retain(|&(again, slot)| {
            if again <= now {
                ready.push_back(slot);
            }
            again > now
        });
        let mut executed = 0;
        while executed < COMMANDS_IN_ITERATION
            && let Some(slot) = self.ready.pop_front()
        {
            worked = true;
            executed += self.serve(slot, now, objects);
        }
        self.server.waiting.end(now);
        self.serve_woken(now, objects);
        if now >= self.stalls_at {
            self.stalls_at = now + STALL_INTERVAL;
            self.end_stalls(now);
        }
        if now >= self.sweep_at {
            worked |= self.sweep(now, objects);
        }
        worked
    }

    /// Removes some elements of collections that are gone; returns whether there were any.
    fn sweep(&mut self, now: Nanos, objects: &mut dyn Objects) -> bool {
        let Server { sweep, tables, .. } = &mut self.server;
        let swept = sweep.step(tables, objects);
        // No client waits for it.
        objects.take_position();
        self.sweep_at = match swept {
            Swept::Worked => now,
            Swept::Later => now + SWEEP_PAUSE,
            Swept::Nothing => now + SWEEP_INTERVAL,
        };
        swept == Swept::Worked
    }

    /// Sends the replies that need not wait, given the log position up to which clients may learn
    /// of everything; returns whether there were any.
    pub fn send(&mut self, now: Nanos, objects: &dyn Objects) -> bool {
        let durable = objects.durable();
        while let Some(&(position, slot)) = self.waiting.front()
            && position <= durable
        {
            self.waiting.pop_front();
            self.sendable.push(slot);
        }
        let worked = !self.sendable.is_empty();
        let sendable = std::mem::take(&mut self.sendable);
        for slot in &sendable {
            self.send_to(*slot, durable, now);
        }
        // The list keeps its memory.
        self.sendable = sendable;
        self.sendable.clear();
        if !self.waiting.is_empty()
            && let Some(reason) = objects.stopped()
        {
            let reply = format!(
                "MISCONF the server takes no more writes: {reason}; it is unknown whether this \
                 command, and those that were sent after it, took effect"
            );
            for (_, slot) in std::mem::take(&mut self.waiting) {
                if let Some(connection) = &mut self.connections[slot] {
                    connection.abandon(&reply);
                    self.send_to(slot, durable, now);
                }
            }
        }
        worked
    }

    /// Takes the kernel's events; returns whether there were any.
    fn events(&mut self, now: Nanos) -> bool {
        if self.pause.is_some_and(|until| until <= now) {
            self.pause = None;
            self.accept(now);
        }
        let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        let events = match epoll::wait(&self.epoll, &mut room, Some(&NOW)) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return false,
            Err(error) => panic!("epoll of this process's own descriptors: {error}"),
        };
        for event in &*events {
            match event.data.u64() {
                LISTENER => self.accept(now),
                slot => {
                    let slot = usize::try_from(slot).expect("a slot");
                    let flags = event.flags;
                    // `RDHUP` is asked for while a command waits: its client has gone.
                    if flags.intersects(EventFlags::ERR | EventFlags::HUP | EventFlags::RDHUP) {
                        self.close(slot);
                    }
                    if flags.contains(EventFlags::OUT) {
                        self.sendable.push(slot);
                    }
                    if flags.contains(EventFlags::IN) {
                        self.ready.push_back(slot);
                    }
                }
            }
        }
        !events.is_empty()
    }

    fn accept(&mut self, now: Nanos) {
        if self.pause.is_some() {
            return;
        }
        for _ in 0..ACCEPTED_AT_ONCE {
            let (socket, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client has gone already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    if now >= self.warn_at {
                        tracing::warn!("cannot accept a Redis client: {error}");
                        self.warn_at = now + WARN_INTERVAL;
                    }
                    self.pause = Some(now + ACCEPT_PAUSE);
                    return;
                }
            };
            self.server.accepted += 1;
            if self.server.connections >= MAX_CONNECTIONS {
                self.server.refused += 1;
                // A client that does not take the error is closed without it.
                let _ = rustix::net::send(
                    &socket,
                    b"-ERR max number of clients reached\r\n",
                    rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL,
                );
                continue;
            }
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let added = socket.set_nonblocking(true).and_then(|()| {
                socket.set_nodelay(true)?;
                let data = EventData::new_u64(slot as u64);
                Ok(epoll::add(&self.epoll, &socket, data, EventFlags::IN)?)
            });
            if let Err(error) = added {
                tracing::warn!("cannot serve the Redis client {peer}: {error}");
                self.free.push(slot);
                continue;
            }
            let session = Session::new((self.next_id, slot), peer, !self.server.has_password());
            self.next_id += 1;
            self.server.connections += 1;
            let connection = Box::new(Connection::new(socket, session, COMMAND_LIMITS));
            self.held += connection.held();
            self.connections[slot] = Some(connection);
        }
    }

    /// Gives a connection its turn; returns the number of commands that were executed.
    fn serve(&mut self, slot: usize, now: Nanos, objects: &mut dyn Objects) -> usize {
        // An event may belong to a connection that has been closed since.
        let Some(mut connection) = self.connections[slot].take() else { return 0 };
        self.held -= connection.held();
        connection.pause = None;
        let mut left = COMMANDS_AT_ONCE;
        let is_open = self.converse(slot, &mut connection, now, &mut left, objects);
        self.sendable.push(slot);
        self.put_back(slot, connection, is_open);
        COMMANDS_AT_ONCE - left
    }

    /// Executes what a connection has received, receives more, and executes that. Returns whether
    /// the connection is still open.
    fn converse(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        now: Nanos,
        left: &mut usize,
        objects: &mut dyn Objects,
    ) -> bool {
        self.execute_all(slot, connection, now, left, objects);
        if connection.pause.is_some() || connection.session.ends || connection.has_ended {
            return true;
        }
        if self.held > MAX_HELD && connection.held() > LITTLE_HELD {
            self.pause_until(slot, connection, now + RETRY);
            return true;
        }
        match connection.receive(&mut self.buffer) {
            Ok(true) => self.execute_all(slot, connection, now, left, objects),
            Ok(false) => {}
            Err(_) => return false,
        }
        true
    }

    fn pause_until(&mut self, slot: usize, connection: &mut Connection, again: Nanos) {
        connection.pause = Some(Pause::Later);
        self.later.push((again, slot));
    }

    /// Executes the commands that a connection has received, at most `left`.
    fn execute_all(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        now: Nanos,
        left: &mut usize,
        objects: &mut dyn Objects,
    ) {
        while !connection.session.ends && connection.pause.is_none() {
            let unsent = connection.unsent();
            if unsent > MAX_UNSENT || self.held > MAX_HELD && unsent > 0 {
                connection.pause = Some(Pause::Full);
            } else if *left == 0 || connection.session.not_before > now {
                let again = connection.session.not_before.max(now);
                self.pause_until(slot, connection, again);
            } else if !self.execute_next(slot, connection, now, objects) {
                return;
            }
            self.serve_woken(now, objects);
            *left = left.saturating_sub(1);
        }
    }

    /// Executes the commands again that have waited for what the last command has made. The client
    /// of that command may take it back with its next one.
    fn serve_woken(&mut self, now: Nanos, objects: &mut dyn Objects) {
        while let Some(slot) = self.server.waiting.take_woken() {
            // The connection at hand goes on by itself.
            let Some(mut connection) = self.connections[slot].take() else { continue };
            self.held -= connection.held();
            connection.pause = None;
            self.execute_next(slot, &mut connection, now, objects);
            if connection.pause.is_none() {
                self.ready.push_back(slot);
            }
            self.sendable.push(slot);
            self.put_back(slot, connection, true);
        }
    }

    /// Executes the command that is not done yet, or the next one; returns whether there is one.
    fn execute_next(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        now: Nanos,
        objects: &mut dyn Objects,
    ) -> bool {
        let Connection { reader, session, replies, unfinished, .. } = connection;
        let begin = replies.len();
        let before = unfinished.take();
        reader.set_limits(if session.is_authenticated {
            COMMAND_LIMITS
        } else {
            UNAUTHENTICATED_LIMITS
        });
        let command = match before.is_some() {
            true => Ok(Next::Command(reader.current())),
            false => reader.next(),
        };
        let command = match command {
            Ok(Next::Command(command)) => command,
            Ok(Next::Incomplete) => return false,
            Ok(Next::Refused(excess)) => {
                session.break_transaction();
                self.refuse(session, replies, excess.to_string());
                return true;
            }
            Err(broken) => {
                session.ends = true;
                self.refuse(session, replies, broken.to_string());
                return true;
            }
        };
        let info = match commands::check(&command) {
            Ok(info) => info,
            Err(reply) => {
                // A web page that was made to send to this port must not get a command through.
                session.ends = is_http(command.name());
                self.reject(session, replies, command.name(), reply);
                return true;
            }
        };
        if let Some(reply) = commands::refusal(session, info.name) {
            self.reject(session, replies, command.name(), reply.into_bytes());
            return true;
        }
        if let Some(transaction) = &mut session.transaction
            && commands::is_queued(info)
        {
            match commands::queue(transaction, info, &command) {
                Ok(()) => ReplyWriter::new(replies, session.protocol).simple("QUEUED"),
                Err(reply) => self.refuse(session, replies, reply),
            }
            return true;
        }
        let mut attempt = before.unwrap_or_else(|| Unfinished::new(now + PATIENCE));
        replies.append(&mut attempt.reply);
        let database = session.database;
        let done = match self.server.tables[database] {
            None if info.uses_database => Err(Failure::NoTable(database)),
            table => (info.run)(&mut Call {
                command,
                name: info.name,
                objects,
                reply: ReplyWriter::new(replies, session.protocol),
                session,
                server: &mut self.server,
                resume: &mut attempt.resume,
                table: table.unwrap_or_default(),
                room: if self.held > MAX_HELD { LITTLE_HELD } else { MAX_REPLY },
                in_group: false,
                now,
            }),
        };
        attempt.position = attempt.position.max(objects.take_position());
        let is_done =
            matches!(done, Ok(()) | Err(Failure::Error(_) | Failure::Unready(Unready::Refused(_))));
        if is_done && attempt.resume.wait.is_some() {
            self.server.waiting.remove(slot);
        }
        let (again, reason) = match done {
            Ok(()) => {
                self.server.commands += 1;
                self.wait(slot, connection, begin, attempt.position, objects);
                self.deliver(slot, connection, now, objects);
                return true;
            }
            Err(Failure::Error(text)) => {
                replies.truncate(begin);
                self.refuse(session, replies, text.as_bytes());
                self.wait(slot, connection, begin, attempt.position, objects);
                return true;
            }
            Err(Failure::Unready(Unready::Refused(text))) => {
                replies.truncate(begin);
                self.refuse(session, replies, text);
                return true;
            }
            Err(Failure::Continue) => {
                attempt.until = now + PATIENCE;
                (now, "it takes long")
            }
            Err(Failure::Wait(keys)) => {
                attempt.until = now + PATIENCE;
                // The keys are kept twice.
                attempt.waits += 2 * keys.iter().map(Vec::len).sum::<usize>();
                self.server.waiting.add(slot, database, keys, attempt.resume.wait.flatten());
                *unfinished = Some(attempt);
                connection.pause = Some(Pause::Element);
                return true;
            }
            Err(Failure::Unready(Unready::Later(reason))) => (now + RETRY, reason),
            Err(Failure::Unready(Unready::NoTable)) => {
                self.server.tables[database] = None;
                self.server.open(database);
                (now + RETRY, NO_TABLE)
            }
            Err(Failure::NoTable(database)) => {
                self.server.open(database);
                (now + RETRY, NO_TABLE)
            }
        };
        if now >= attempt.until {
            replies.truncate(begin);
            self.server.waiting.remove(slot);
            if info.name == "exec" {
                session.end_transaction();
            }
            self.refuse(session, replies, try_again(reason));
            return true;
        }
        let reply = replies.split_off(begin);
        if attempt.resume.keeps_reply {
            attempt.reply = reply;
        }
        *unfinished = Some(attempt);
        self.pause_until(slot, connection, again);
        true
    }

    /// Gives subscribers what the command at hand has published. A message waits for what its
    /// publisher has written before: `publisher` is its connection, and `slot` the connection's.
    fn deliver(
        &mut self,
        slot: usize,
        publisher: &mut Connection,
        now: Nanos,
        objects: &dyn Objects,
    ) {
        for message in std::mem::take(&mut self.server.channels.published) {
            let Message { channel, payload } = &message;
            let position = publisher.waits_last();
            let receivers = self.server.channels.receivers(channel);
            let receivers: Vec<_> =
                receivers.map(|(slot, pattern)| (slot, pattern.map(<[u8]>::to_vec))).collect();
            for (to, pattern) in receivers {
                let mut other = self.connections[to].take();
                if other.is_none() && to != slot {
                    // It got the message for another subscription, and was too slow.
                    continue;
                }
                let connection = other.as_deref_mut().unwrap_or(&mut *publisher);
                let (begin, held) = (connection.replies.len(), connection.held());
                let protocol = connection.session.protocol;
                let mut reply = ReplyWriter::new(&mut connection.replies, protocol);
                commands::write_message(&mut reply, pattern.as_deref(), channel, payload);
                self.wait(to, connection, begin, position, objects);
                let Some(mut connection) = other else { continue };
                if self.held > MAX_HELD {
                    // An error is found again when the rest is sent.
                    let _ = connection.send(objects.durable(), now);
                }
                self.held = self.held - held + connection.held();
                let is_slow = connection.unsent() > MAX_UNREAD
                    || self.held > MAX_HELD && connection.unsent() > LITTLE_HELD;
                let Session { id, peer, .. } = connection.session;
                self.connections[to] = Some(connection);
                self.sendable.push(to);
                if is_slow {
                    tracing::warn!(
                        "disconnected Redis client {id} at {peer}: it takes its messages too slowly"
                    );
                    self.close(to);
                }
            }
        }
    }

    /// Refuses a command, so that the transaction to which it belongs will not be executed.
    fn reject(
        &mut self,
        session: &mut Session,
        replies: &mut Vec<u8>,
        name: &[u8],
        reply: Vec<u8>,
    ) {
        if name.eq_ignore_ascii_case(b"exec") {
            session.end_transaction();
            let reason = reply.strip_prefix(b"ERR ").unwrap_or(&reply);
            let reply = [b"EXECABORT Transaction discarded because of: ", reason].concat();
            return self.refuse(session, replies, reply);
        }
        session.break_transaction();
        self.refuse(session, replies, reply);
    }

    /// Replies with an error.
    fn refuse(&mut self, session: &Session, replies: &mut Vec<u8>, reply: impl AsRef<[u8]>) {
        self.server.errors += 1;
        ReplyWriter::new(replies, session.protocol).error(reply);
    }

    /// Makes the replies of a connection from `begin` on wait for a log position.
    fn wait(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        begin: usize,
        position: u64,
        objects: &dyn Objects,
    ) {
        if position > objects.durable() && connection.wait(begin, position) {
            let last = self.waiting.back().map_or(0, |(last, _)| *last);
            self.waiting.push_back((position.max(last), slot));
        }
    }

    /// Sends what a connection may get.
    fn send_to(&mut self, slot: usize, durable: u64, now: Nanos) {
        let Some(mut connection) = self.connections[slot].take() else { return };
        self.held -= connection.held();
        let sent = connection.send(durable, now);
        let unsent = connection.unsent();
        if connection.pause == Some(Pause::Full) && (unsent == 0 || unsent < MAX_UNSENT / 2) {
            self.pause_until(slot, &mut connection, now);
        }
        self.put_back(slot, connection, sent.is_ok());
    }

    /// Puts a connection back after its turn, or closes it.
    fn put_back(&mut self, slot: usize, mut connection: Box<Connection>, is_open: bool) {
        self.held += connection.held();
        let stays = is_open && self.arrange(slot, &mut connection);
        self.connections[slot] = Some(connection);
        if !stays {
            self.close(slot);
        }
    }

    /// Sets which events of a connection count; returns whether it stays open.
    fn arrange(&self, slot: usize, connection: &mut Connection) -> bool {
        let unsent = connection.unsent();
        let is_done = connection.session.ends || connection.has_ended && connection.pause.is_none();
        if is_done && unsent == 0 {
            return false;
        }
        let mut interest = EventFlags::empty();
        interest
            .set(EventFlags::IN, !is_done && !connection.has_ended && connection.pause.is_none());
        interest.set(EventFlags::RDHUP, connection.pause == Some(Pause::Element));
        interest.set(EventFlags::OUT, connection.is_blocked);
        if interest != connection.interest {
            let data = EventData::new_u64(slot as u64);
            connection.interest = interest;
            return epoll::modify(&self.epoll, &connection.socket, data, interest).is_ok();
        }
        true
    }

    /// Closes a connection. What other lists say of its slot is checked when its turn comes.
    fn close(&mut self, slot: usize) {
        if let Some(mut connection) = self.connections[slot].take() {
            self.held -= connection.held();
            let subscriptions = &mut connection.session.subscriptions;
            self.server.channels.unsubscribe_all(slot, subscriptions);
            self.server.waiting.remove(slot);
            self.server.connections -= 1;
            self.free.push(slot);
            // While the disk is slow, clients may come and go.
            if connection.waits_for().is_some() {
                self.waiting.retain(|(_, waiting)| *waiting != slot);
            }
        }
    }

    /// Closes the connections of clients that do not take their replies.
    fn end_stalls(&mut self, now: Nanos) {
        for slot in 0..self.connections.len() {
            let Some(connection) = &self.connections[slot] else { continue };
            if connection.is_blocked && now.since(connection.took) > MAX_STALL {
                let Session { id, peer, .. } = connection.session;
                tracing::warn!(
                    "disconnected Redis client {id} at {peer}: it has not taken its replies for \
                     {} s",
                    MAX_STALL.as_secs()
                );
                self.close(slot);
            }
        }
    }
}

/// Returns whether the name of an unknown command is the beginning of an HTTP request.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}
