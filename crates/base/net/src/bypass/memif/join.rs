//! The handshake: from a connected socket to shared rings.
//!
//! ```text
//! server -> Hello
//! client -> Init, AddRegion, AddRing (to the server), AddRing (to the client): one at a time, the
//!           server replies to each with Ack
//! client -> Connect
//! server -> Connected
//! ```

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use super::arguments::{Arguments, MAX_LOG2_SLOTS, Role};
use super::message::{AddRing, Hello, Init, Message, VERSION};
use super::region::Region;
use super::ring::{Buffers, Receiver, RingLayout, Sender, ring_bytes};
use super::socket::Socket;
use crate::Nanos;

/// The largest number of regions that a client may supply. A further region is a protocol error.
const MAX_REGIONS: usize = 4;

/// The largest number of messages read in one call: more than a handshake has.
const MESSAGES: usize = 16;

/// A handshake in progress.
pub(super) struct Joining {
    pub(super) socket: Socket,
    pub(super) since: Nanos,
    regions: Vec<Region>,
    /// The rings to the server and to the client, each with the eventfd that wakes its reader.
    rings: [Option<(RingLayout, OwnedFd)>; 2],
    /// The messages that the client has yet to send, each with the descriptor to attach.
    unsent: VecDeque<(Message, Attachment)>,
    /// Whether the peer's first message has arrived: the server's Hello, or the client's Init.
    greeted: bool,
}

/// The descriptor attached to a message.
#[derive(Clone, Copy)]
enum Attachment {
    Nothing,
    Region,
    /// The eventfd that wakes the reader of that ring.
    Bell(usize),
}

/// A finished handshake.
pub(super) struct Joined {
    pub(super) socket: Socket,
    pub(super) regions: Vec<Region>,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// The eventfd that wakes the peer.
    pub(super) peer_bell: OwnedFd,
    /// The eventfd by which the peer wakes us.
    pub(super) own_bell: OwnedFd,
}

fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// Returns the error for a peer that has ended the connection with the reason `why`.
pub(super) fn disconnected(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, format!("the peer says: {why}"))
}

impl Joining {
    /// Begins a handshake over a connected socket.
    ///
    /// # Errors
    /// Errors of the socket.
    pub(super) fn begin(socket: Socket, role: Role, now: Nanos) -> io::Result<Self> {
        if role == Role::Server {
            let hello = Hello {
                versions: [VERSION, VERSION],
                max_region: u16::try_from(MAX_REGIONS - 1).expect("few"),
                max_rings: [0, 0],
                max_log2_slots: MAX_LOG2_SLOTS,
            };
            socket.send(&Message::Hello(hello), None)?;
        }
        let unsent = VecDeque::new();
        Ok(Self {
            socket,
            since: now,
            regions: Vec::new(),
            rings: [None, None],
            unsent,
            greeted: false,
        })
    }

    /// Handles the peer's messages, and returns whether the handshake is finished. `buffer` is the
    /// length of the buffers in bytes: at least that of the longest frame.
    ///
    /// # Errors
    /// Errors of the socket, or of the shared memory. `ConnectionReset` if the peer ends the
    /// connection. `InvalidData` if a message violates the protocol or does not fit this end; the
    /// caller then sends the reason to the peer.
    pub(super) fn advance(&mut self, arguments: &Arguments, buffer: u32) -> io::Result<bool> {
        for _ in 0..MESSAGES {
            let Some((message, attached)) = self.socket.receive()? else { break };
            let joined = match arguments.role {
                Role::Server => self.serve(arguments, buffer, message, attached)?,
                Role::Client => self.request(arguments, buffer, message)?,
            };
            if joined {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn serve(
        &mut self,
        arguments: &Arguments,
        buffer: u32,
        message: Message,
        attached: Option<OwnedFd>,
    ) -> io::Result<bool> {
        match message {
            Message::Init(init) if !self.greeted => {
                admit(arguments, &init)?;
                self.greeted = true;
            }
            Message::AddRegion { index, bytes } if self.greeted => {
                if usize::from(index) != self.regions.len() || self.regions.len() >= MAX_REGIONS {
                    return Err(refused(format!(
                        "region {index} is not the next, or one too many"
                    )));
                }
                self.regions.push(Region::from_peer(
                    attached.ok_or_else(|| refused("a region without memory"))?,
                    bytes,
                )?);
            }
            Message::AddRing(AddRing { to_server, index, region, offset, log2_slots })
                if self.greeted =>
            {
                let layout =
                    RingLayout { region, offset: offset as usize, log2_slots, buffers: None };
                let slot = &mut self.rings[usize::from(!to_server)];
                if index != 0 || slot.is_some() {
                    return Err(refused("only one queue each way is supported: set queues to 1"));
                }
                if !(1..=MAX_LOG2_SLOTS).contains(&log2_slots)
                    || !layout.is_in_region(&self.regions)
                {
                    return Err(refused("a ring that is not in its region"));
                }
                *slot =
                    Some((layout, attached.ok_or_else(|| refused("a ring without an eventfd"))?));
            }
            Message::Connect if self.greeted => {
                let [Some((to_server, _)), Some((to_client, _))] = &self.rings else {
                    return Err(refused("a ring is missing"));
                };
                if !to_server.has_cookie(&self.regions) || !to_client.has_cookie(&self.regions) {
                    return Err(refused("a ring without a valid header"));
                }
                let theirs = to_client.buffer(&self.regions);
                if theirs < buffer as usize {
                    let remedy =
                        format!("set bsize={buffer} at the client, or a smaller mtu at the server");
                    return Err(refused(format!(
                        "buffers of {theirs} bytes are too short for a frame: {remedy}"
                    )));
                }
                self.socket.send(&Message::Connected, None)?;
                return Ok(true);
            }
            Message::Disconnect(why) => return Err(disconnected(&why)),
            other => return Err(refused(format!("unexpected message {other:?}"))),
        }
        self.socket.send(&Message::Ack, None)?;
        Ok(false)
    }

    fn request(
        &mut self,
        arguments: &Arguments,
        buffer: u32,
        message: Message,
    ) -> io::Result<bool> {
        match message {
            Message::Hello(hello) if !self.greeted => {
                if !(hello.versions[0]..=hello.versions[1]).contains(&VERSION) {
                    return Err(refused(format!(
                        "the server speaks memif {:#06x?}, not 2.0",
                        hello.versions
                    )));
                }
                self.greeted = true;
                self.prepare(arguments, buffer, hello.max_log2_slots)?;
            }
            Message::Ack if self.greeted && !self.unsent.is_empty() => {}
            Message::Connected if self.greeted && self.unsent.is_empty() => return Ok(true),
            Message::Disconnect(why) => return Err(disconnected(&why)),
            other => return Err(refused(format!("unexpected message {other:?}"))),
        }
        let (message, attached) = self.unsent.pop_front().expect("looked at above, or just filled");
        let attached = match attached {
            Attachment::Nothing => None,
            Attachment::Region => Some(self.regions[0].fd()),
            Attachment::Bell(ring) => self.rings[ring].as_ref().map(|(_, bell)| bell.as_fd()),
        };
        self.socket.send(&message, attached)?;
        Ok(false)
    }

    /// Creates the memory, the rings, and the messages that describe both.
    fn prepare(
        &mut self,
        arguments: &Arguments,
        buffer: u32,
        max_log2_slots: u8,
    ) -> io::Result<()> {
        let log2_slots = arguments.log2_slots.min(max_log2_slots).max(1);
        let (ring, slots) = (ring_bytes(log2_slots), 1_u32 << log2_slots);
        let offset = |at: usize| {
            u32::try_from(at).map_err(|_| refused("rings beyond 4 GB: set rsize or bsize lower"))
        };
        let buffers = offset(2 * ring)?.next_multiple_of(64);
        let way = buffer
            .checked_mul(slots)
            .ok_or_else(|| refused("rings beyond 4 GB: set rsize or bsize lower"))?;
        let bytes = buffers as usize + 2 * way as usize;
        offset(bytes)?;
        self.regions = vec![Region::create(&arguments.name, bytes)?];
        self.unsent.push_back((
            Message::Init(Init {
                version: VERSION,
                id: arguments.id,
                ethernet: true,
                secret: arguments.secret,
            }),
            Attachment::Nothing,
        ));
        self.unsent
            .push_back((Message::AddRegion { index: 0, bytes: bytes as u64 }, Attachment::Region));
        for (at, to_server) in [true, false].into_iter().enumerate() {
            let own = Buffers { offset: buffers + if to_server { 0 } else { way }, bytes: buffer };
            let layout =
                RingLayout { region: 0, offset: at * ring, log2_slots, buffers: Some(own) };
            layout.init(&self.regions);
            let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
            self.rings[at] = Some((layout, bell));
            let ring =
                AddRing { to_server, index: 0, region: 0, offset: offset(at * ring)?, log2_slots };
            self.unsent.push_back((Message::AddRing(ring), Attachment::Bell(at)));
        }
        self.unsent.push_back((Message::Connect, Attachment::Nothing));
        Ok(())
    }

    /// Returns the result of a finished handshake.
    pub(super) fn finish(self, role: Role) -> Joined {
        let [Some(to_server), Some(to_client)] = self.rings else {
            unreachable!("both have come to terms")
        };
        let (theirs, ours) = match role {
            Role::Server => (to_client, to_server),
            Role::Client => (to_server, to_client),
        };
        let receiver = Receiver::new(ours.0, &self.regions);
        Joined {
            socket: self.socket,
            regions: self.regions,
            sender: Sender::new(theirs.0),
            receiver,
            peer_bell: theirs.1,
            own_bell: ours.1,
        }
    }
}

/// Checks that a client fits this interface.
fn admit(arguments: &Arguments, init: &Init) -> io::Result<()> {
    if init.version != VERSION {
        return Err(refused(format!("memif {:#06x} is not supported, only 2.0", init.version)));
    }
    if init.id != arguments.id {
        return Err(refused(format!(
            "there is no interface {} at this socket, only {}",
            init.id, arguments.id
        )));
    }
    if !init.ethernet {
        return Err(refused("only Ethernet frames are supported"));
    }
    if init.secret != arguments.secret {
        return Err(refused("the secret is wrong"));
    }
    Ok(())
}
