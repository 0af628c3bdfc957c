//! The hosts of one file. The first host defines the file; the others may have the file too.
//!
//! Entity tags are local to a host, so the tags of two hosts cannot be compared. Bytes can be
//! compared: every group from another host must have the value that the first host states for that
//! group. The value that the other host states shows whether the group arrived intact. If the group
//! is intact but has a different value at the first host, the other host has another file.

use super::answer::{FileRequest, Form};
use super::client::{Client, Reply};
use super::error::{Error, Trouble};
use crate::file::Attributes;
use sprat_host::lock;
use sprat_http::{Address, Cancel};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Number of corrupt groups at which a host other than the first is dropped.
pub(super) const MAX_WRONG: u32 = 3;

/// The address of a file, and what identifies the file's state there.
#[derive(Clone, Debug)]
pub(crate) struct RemoteFile {
    pub(crate) address: Address,
    pub(crate) verified: bool,
    pub(crate) validator: Option<String>,
}

impl RemoteFile {
    /// Returns the form in which the server sends the file's bytes.
    pub(crate) fn form(&self) -> Form {
        Form::of_bytes(self.verified)
    }
}

/// What the first response said about the file.
pub(super) struct OpenedFile {
    pub(super) source: RemoteFile,
    /// Time, permissions and extended attributes that the file is to get.
    pub(super) attributes: Attributes,
    pub(super) reply: Reply,
    /// Whether the reply has a body, with all of the file or its beginning.
    pub(super) has_body: bool,
}

/// One of the hosts, shared by all streams to it.
#[derive(Debug)]
pub(crate) struct Host {
    address: Address,
    standing: Mutex<Standing>,
    /// Bytes of the file received from the host.
    pub(crate) received: AtomicU64,
    /// Number of corrupt groups received from the host. Not counted for the first host.
    pub(crate) wrong: AtomicU32,
}

#[derive(Debug)]
enum Standing {
    /// No stream has sent a request to the host yet.
    Unknown,
    Ready(RemoteFile),
    /// The host is not used any more in this attempt. With `for_good`, later attempts do not use it
    /// either, for example because it has another file.
    Dropped {
        for_good: bool,
    },
}

impl Host {
    /// Creates a host that may have the file.
    pub(super) fn new(address: Address) -> Self {
        Self::with(address, Standing::Unknown)
    }

    /// Creates a host that has responded.
    pub(super) fn ready(source: RemoteFile) -> Self {
        Self::with(source.address.clone(), Standing::Ready(source))
    }

    fn with(address: Address, standing: Standing) -> Self {
        Self {
            address,
            standing: Mutex::new(standing),
            received: AtomicU64::new(0),
            wrong: AtomicU32::new(0),
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns how to request the file of `length` bytes from this host. Unless an earlier call has
    /// succeeded, requests the file's head, to check that the host has a file of that length, and
    /// that it sends the verified form or ranges.
    pub(super) fn source(
        &self,
        client: &Client,
        verify: bool,
        length: u64,
        cancel: &Cancel,
    ) -> Result<RemoteFile, Trouble> {
        let mut standing = self.lock();
        if let Standing::Ready(source) = &*standing {
            return Ok(source.clone());
        }
        let form = (!verify).then_some(Form::Plain);
        let file_request = FileRequest { head_only: true, form, ..FileRequest::default() };
        let (address, reply) = client.ask_following(&self.address, &file_request, cancel)?;
        let (verified, source_name) = (reply.start.verified, address.to_string());
        let why = match reply.start.length {
            Some(has) if has != length => {
                format!("has another file: it has {has} B, the first host's has {length} B")
            }
            None => "does not state the file's length".to_owned(),
            Some(_) if !verified && !reply.head.ranges => {
                "does not offer ranges of files".to_owned()
            }
            Some(_) => {
                let source = RemoteFile { address, verified, validator: reply.head.validator() };
                *standing = Standing::Ready(source.clone());
                return Ok(source);
            }
        };
        Err(Error::Protocol { source_name, why }.into())
    }

    /// Stops using the host. Returns whether it was in use.
    pub(super) fn drop_host(&self, for_good: bool) -> bool {
        let had = std::mem::replace(&mut *self.lock(), Standing::Dropped { for_good });
        !matches!(had, Standing::Dropped { .. })
    }

    /// Returns whether the host is not used any more.
    pub(super) fn is_dropped(&self) -> bool {
        matches!(*self.lock(), Standing::Dropped { .. })
    }

    /// Returns whether the host was dropped for good, for example because it does not have this
    /// file.
    pub(super) fn lacks_file(&self) -> bool {
        matches!(*self.lock(), Standing::Dropped { for_good: true })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Standing> {
        lock(&self.standing)
    }
}
