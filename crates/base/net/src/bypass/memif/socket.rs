//! The socket of the handshake, which carries whole messages with attached descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with,
};

use super::arguments::Arguments;
use super::message::{MESSAGE_BYTES, Message};

/// The `listen` backlog.
const BACKLOG: i32 = 4;

/// The number of descriptors for which a received message has room. The kernel discards further
/// descriptors.
const DESCRIPTORS: usize = 2;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A connected socket.
pub(super) struct Socket(OwnedFd);

/// A server's listening socket. Dropping it removes its file.
pub(super) struct Listener {
    fd: OwnedFd,
    file: Option<String>,
}

fn address(arguments: &Arguments) -> io::Result<SocketAddrUnix> {
    Ok(match arguments.is_abstract {
        true => SocketAddrUnix::new_abstract_name(arguments.socket.as_bytes())?,
        false => SocketAddrUnix::new(arguments.socket.as_str())?,
    })
}

fn open() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?)
}

impl Listener {
    /// Listens at the socket. Replaces the socket file of a server that was killed, but not that of
    /// a live server.
    ///
    /// # Errors
    /// `AddrInUse` if a live server listens there. Other errors of the system.
    pub(super) fn open(arguments: &Arguments) -> io::Result<Self> {
        let (fd, at) = (open()?, address(arguments)?);
        let mut bound = bind(&fd, &at);
        if bound == Err(Errno::ADDRINUSE)
            && !arguments.is_abstract
            && connect(open()?, &at) == Err(Errno::CONNREFUSED)
        {
            std::fs::remove_file(&arguments.socket)?;
            bound = bind(&fd, &at);
        }
        let named = |errno: Errno| {
            let error = io::Error::from(errno);
            io::Error::new(
                error.kind(),
                format!("{}: socket {}: {error}", arguments.name, arguments.socket),
            )
        };
        bound.and_then(|()| listen(&fd, BACKLOG)).map_err(named)?;
        Ok(Self { fd, file: (!arguments.is_abstract).then(|| arguments.socket.clone()) })
    }

    /// Accepts a connection, if there is one.
    pub(super) fn accept(&self) -> Option<Socket> {
        accept_with(&self.fd, FLAGS).ok().map(Socket)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Socket {
    /// Connects to the server.
    ///
    /// # Errors
    /// Errors of the system, for example if no server listens.
    pub(super) fn connect(arguments: &Arguments) -> io::Result<Self> {
        let fd = open()?;
        connect(&fd, &address(arguments)?)?;
        Ok(Self(fd))
    }

    /// Sends a message with at most one descriptor.
    ///
    /// # Errors
    /// Errors of the system. If the socket's buffer is full, the peer does not read, and counts as
    /// gone.
    pub(super) fn send(
        &self,
        message: &Message,
        attached: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let bytes = message.to_bytes();
        let attached = attached.as_slice();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !attached.is_empty() {
            assert!(
                control.push(SendAncillaryMessage::ScmRights(attached)),
                "there is room for one"
            );
        }
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives a message with its descriptor, if one has arrived.
    ///
    /// # Errors
    /// Errors of the system. `UnexpectedEof` if the peer has closed the socket. `InvalidData` if
    /// the message is malformed.
    pub(super) fn receive(&self) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = match recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(got) => got.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let attached = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        match got {
            0 => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection"))
            }
            MESSAGE_BYTES => {
                let message = Message::parse(&bytes)
                    .map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad))?;
                Ok(Some((message, attached)))
            }
            _ => {
                Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {got} bytes")))
            }
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
