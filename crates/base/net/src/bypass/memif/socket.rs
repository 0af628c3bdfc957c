//! The socket over which both ends come to terms: whole messages, and descriptors that come along.

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

/// Callers that may wait to be let in.
const CALLERS: i32 = 4;

/// Descriptors that come with one message, at most; of more, those behind are closed.
const DESCRIPTORS: usize = 2;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// One end of a conversation.
pub(super) struct Socket(OwnedFd);

/// Where a server is called. Its file goes with it.
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
    /// Listens. Takes the place of a server that was killed, not of one that lives.
    ///
    /// # Errors
    /// `AddrInUse`; the system's.
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
        let said = |errno: Errno| {
            let error = io::Error::from(errno);
            io::Error::new(
                error.kind(),
                format!("{}: socket {}: {error}", arguments.name, arguments.socket),
            )
        };
        bound.and_then(|()| listen(&fd, CALLERS)).map_err(said)?;
        Ok(Self { fd, file: (!arguments.is_abstract).then(|| arguments.socket.clone()) })
    }

    /// Who calls, if somebody does.
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
    /// Calls the server.
    ///
    /// # Errors
    /// The system's: nobody listens, say.
    pub(super) fn connect(arguments: &Arguments) -> io::Result<Self> {
        let fd = open()?;
        connect(&fd, &address(arguments)?)?;
        Ok(Self(fd))
    }

    /// Says something.
    ///
    /// # Errors
    /// The system's; a peer that does not listen to what little there is to say counts as gone.
    pub(super) fn send(&self, message: &Message, along: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = message.to_bytes();
        let along = along.as_slice();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !along.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(along)), "there is room for one");
        }
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// What the peer has said, if anything, and the descriptor that came along.
    ///
    /// # Errors
    /// The system's; `UnexpectedEof` when the peer has hung up; `InvalidData` for what is no
    /// message.
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
        let along = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        match got {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer has hung up")),
            MESSAGE_BYTES => {
                let message = Message::parse(&bytes)
                    .map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad))?;
                Ok(Some((message, along)))
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
