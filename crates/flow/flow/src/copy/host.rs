//! The hosts of one file: the first, which decides what the file is, and others that may have it
//! too.
//!
//! Entity tags are each host's own, so that nothing can be told by holding those of two against
//! each other. What can is the bytes: every group that another host sends must have the value that
//! the first tells for it. A host's own value only tells whether the group is what that host has:
//! if so, and it is not the first's, that host has another file.

use super::answer::{Asked, Form};
use super::client::{Client, Reply};
use super::error::{Error, Trouble};
use crate::file::Attributes;
use sprat_host::lock;
use sprat_http::{Address, Cancel};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Groups of a host that may arrive wrong before it is done without; the first host is not.
pub(super) const MAX_WRONG: u32 = 3;

/// Where the bytes come from, and how those of this state of the file are asked for.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) address: Address,
    pub(crate) verified: bool,
    pub(crate) validator: Option<String>,
}

impl Source {
    /// The form in which it sends the file's bytes.
    pub(crate) fn form(&self) -> Form {
        Form::of_bytes(self.verified)
    }
}

/// What the first answer told.
pub(super) struct Found {
    pub(super) source: Source,
    /// When the file changed, and its permissions, as told.
    pub(super) attributes: Attributes,
    pub(super) reply: Reply,
    /// Whether the reply has a body: all of the file, or its beginning.
    pub(super) has_body: bool,
}

/// One of the hosts, as all lanes to it see it.
#[derive(Debug)]
pub(crate) struct Host {
    address: Address,
    standing: Mutex<Standing>,
    /// Bytes of the file that came from it.
    pub(crate) received: AtomicU64,
    /// Groups that arrived wrong from it.
    pub(crate) wrong: AtomicU32,
}

#[derive(Debug)]
enum Standing {
    /// Nobody has asked it yet.
    Unknown,
    Ready(Source),
    /// It is done without; for good, if it does not have the file.
    Left {
        for_good: bool,
    },
}

impl Host {
    /// One that may have the file.
    pub(super) fn new(address: Address) -> Self {
        Self::with(address, Standing::Unknown)
    }

    /// One that has answered.
    pub(super) fn ready(source: Source) -> Self {
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

    /// How it is asked for the file of `length` bytes. The first time it is seen whether it has
    /// one.
    pub(super) fn source(
        &self,
        client: &Client,
        verify: bool,
        length: u64,
        cancel: &Cancel,
    ) -> Result<Source, Trouble> {
        let mut standing = self.lock();
        if let Standing::Ready(source) = &*standing {
            return Ok(source.clone());
        }
        let form = (!verify).then_some(Form::Plain);
        let asked = Asked { head_only: true, form, ..Asked::default() };
        let (address, reply) = client.ask_around(&self.address, &asked, cancel)?;
        let (verified, source_name) = (reply.start.verified, address.to_string());
        let why = match reply.start.length {
            Some(has) if has != length => {
                format!("has another file: {has} B, and the first host's has {length} B")
            }
            None => "does not say how long the file is".to_owned(),
            Some(_) if !verified && !reply.head.ranges => {
                "does not say that it sends parts of files".to_owned()
            }
            Some(_) => {
                let source = Source { address, verified, validator: reply.head.validator() };
                *standing = Standing::Ready(source.clone());
                return Ok(source);
            }
        };
        Err(Error::Protocol { source_name, why }.into())
    }

    /// Does without it from here on. Gives whether that is new.
    pub(super) fn leave(&self, for_good: bool) -> bool {
        let had = std::mem::replace(&mut *self.lock(), Standing::Left { for_good });
        !matches!(had, Standing::Left { .. })
    }

    /// Whether it is done without.
    pub(super) fn is_left(&self) -> bool {
        matches!(*self.lock(), Standing::Left { .. })
    }

    /// Whether it is done without because it does not have this file.
    pub(super) fn has_another(&self) -> bool {
        matches!(*self.lock(), Standing::Left { for_good: true })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Standing> {
        lock(&self.standing)
    }
}
