//! Receives uploaded files, whole or in parts, into the shared directory.
//!
//! A file gets its name only when it is complete and durable, and verified if the sender states
//! hashes. If a request is rejected before its body has arrived, a short body is discarded and the
//! connection stays open. If the body is long, or the client waits for a 100 response before it
//! sends the body, the connection is closed.

mod intake;
mod parts;
mod uploads;

pub use parts::KEPT_FOR;
pub(super) use parts::Parts;
pub use uploads::{MAX_UPLOAD_STREAMS, MAX_UPLOADS};
pub(super) use uploads::{UploadStream, Uploads};

use super::access::{Proof, Right};
use super::connection::{AfterAnswer, Connection, Sent};
use super::decide::{Body, Decision, finish, text};
use super::put::{self, PutKind};
use super::root::FindError;
use super::shared::Shared;
use crate::file::{Attributes, Destination, SinkError};
use crate::group::{self, GROUP_BYTES};
use intake::BodyReader;
use sprat_http::server::answer::Head;
use sprat_http::server::refused::Refused;
use sprat_http::server::request::Request;
use sprat_http::server::target::Target;
use sprat_http::xattrs::Xattrs;
use sprat_http::{BEGUN, LENGTH, MISSING, MTIME, NOTE, UPLOADED, WRONG};
use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Range;
use std::time::Instant;
use uploads::{FinishError, PublishedFile, PutTarget, conflict, failed};

/// Limit on the length of a small file, in bytes. A small file is written as it arrives, without
/// io_uring and without a journal.
const SMALL: u64 = 4 << 20;

/// Limit on the bytes of an unwanted body that are read and discarded so that the connection can
/// take another request. If the body is longer, the connection is closed.
const MAX_SKIPPED: u64 = 8 << 20;

/// Limit on the corrupt groups of a part. If more groups are corrupt, the upload fails, because a
/// repetition would probably fail too.
const MAX_WRONG: usize = 64;

/// `Retry-After` of a request rejected with status 503, in seconds.
const RETRY_AFTER: u64 = 2;

/// Why a body is not stored.
enum PutError {
    Refused(Refused),
    /// The connection broke or was too slow.
    Disconnected(io::Error),
}

impl From<Refused> for PutError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// The response to a PUT.
struct PutReply {
    head: Head,
    text: String,
}

impl PutReply {
    fn new(status: u16, text: &str) -> Self {
        Self { head: Head::new(status), text: text.to_owned() }
    }

    fn field(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.head = self.head.field(name, value);
        self
    }

    /// Creates the response for a file that has got its name.
    fn named(named: PublishedFile) -> Self {
        let (status, text) = if named.replaced { (200, "replaced") } else { (201, "created") };
        let put = Self::new(status, text).field("ETag", named.version.tag());
        match named.attribute_error {
            Some(error) => put.field(
                NOTE,
                format_args!("time, permissions or extended attributes cannot be set: {error}"),
            ),
            None => put,
        }
    }
}

impl Connection {
    /// Handles a PUT.
    pub(super) fn receive(&mut self, request: &Request, began: Instant) -> AfterAnswer {
        let shared = self.shared.clone();
        let address = request.target.as_ref().map_or_else(|| "*".to_owned(), Target::encoded);
        let tcp = self.channel.tcp();
        let verified =
            request.field("content-type").is_some_and(|kind| kind.contains(group::VERIFIED));
        let mut transfer =
            shared.transfers.begin(tcp, self.peer, &address, (verified, true), request.length);
        let (mut stream, patience) = (self.stream.take(), shared.limits.patience);
        let mut body =
            BodyReader::new(&mut self.channel, &mut self.unread, request.length, patience);
        let taken = shared.put(request, &mut body, &mut stream, &mut |bytes| transfer.add(bytes));
        // If the client expects a 100 response, it is unknown whether it will send the body.
        let skipped = body.left() == 0 || (!request.expects_continue && body.skip(MAX_SKIPPED));
        self.stream = stream;
        let bytes = transfer.sent();
        let (put, error) = match taken {
            Ok(put) => (put, None),
            Err(PutError::Refused(Refused { status, reason })) => {
                let put = PutReply::new(status, &reason);
                let put = if status == 503 { put.field("Retry-After", RETRY_AFTER) } else { put };
                let put = if status == 401 {
                    put.field("WWW-Authenticate", "Bearer realm=\"sprat\"")
                } else {
                    put
                };
                let put = if status == 405 { put.field("Allow", shared.allowed()) } else { put };
                (put, Some(reason))
            }
            Err(PutError::Disconnected(error)) => {
                let error = format!("the connection broke: {error}");
                transfer.end(&error);
                self.report(
                    Some((request, &address)),
                    Sent { bytes, verified, error: Some(error), ..Sent::default() },
                    began,
                );
                return AfterAnswer::Abort;
            }
        };
        transfer.end(error.as_deref().unwrap_or("done"));
        drop(transfer);
        let keep = request.keep_alive && skipped && self.stays_open();
        let body = format!("{}\n", put.text).into_bytes();
        let head = put
            .head
            .field("Content-Type", "text/plain; charset=utf-8")
            .field("Content-Length", body.len());
        let status = head.status();
        let sent = self.channel.send(&[&head.finish(keep), &body]);
        let error = error.or_else(|| sent.as_ref().err().map(ToString::to_string));
        self.report(
            Some((request, &address)),
            Sent { status, bytes, verified, error, ..Sent::default() },
            began,
        );
        match (sent, keep) {
            (Err(_), _) => AfterAnswer::Abort,
            (Ok(()), true) => AfterAnswer::KeepAlive,
            (Ok(()), false) if skipped => AfterAnswer::Close,
            (Ok(()), false) => AfterAnswer::Drain,
        }
    }
}

impl Shared {
    /// Checks whether the client of the request may store files.
    fn may_put(&self, request: &Request) -> Result<(), Refused> {
        let refused = |status, reason: &str| Err(Refused { status, reason: reason.to_owned() });
        match self.tokens().check(request) {
            None | Some(Proof::Ticket) => return refused(401, "a token is required"),
            Some(Proof::Head(_, Right::Read) | Proof::Address(_, Right::Read)) => {
                return refused(403, "this token allows only reading");
            }
            // `Origin` means that a page in a browser sent the request. The page may belong to
            // another site, even if it used an accepted host name.
            Some(Proof::None) if request.field("origin").is_some() => {
                return refused(
                    403,
                    "pages in browsers can upload only to shares that require a token",
                );
            }
            Some(_) => {}
        }
        if self.writable.is_none() {
            return refused(405, "this share is read-only; sprat share --writable accepts files");
        }
        Ok(())
    }

    /// Handles a PUT, and calls `progress` with the number of bytes of each group that arrives.
    fn put(
        &self,
        request: &Request,
        body: &mut BodyReader<'_>,
        stream: &mut Option<UploadStream>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<PutReply, PutError> {
        self.may_put(request)?;
        let (put, mut attributes) = put::parse(request, self.writable.unwrap_or(0))?;
        if !self.xattrs && !attributes.xattrs.is_empty() {
            return Err(Refused {
                status: 403,
                reason: "extended attributes are not accepted here; sprat share --xattrs accepts \
                     them"
                    .to_owned(),
            }
            .into());
        }
        if put == PutKind::Folder {
            attributes.xattrs = Xattrs::default(); // directories get none
        }
        let target =
            request.target.as_ref().ok_or_else(|| Refused::bad("files cannot be stored there"))?;
        if put == PutKind::Folder {
            return Ok(self.put_folder(target, &attributes)?);
        }
        let target_file = self.target_file(target)?;
        match put {
            PutKind::Folder => unreachable!("done"),
            PutKind::Whole { length, verified } => {
                target_file.check_condition(request)?;
                let small = length <= SMALL;
                if request.expects_continue {
                    body.send_continue().map_err(PutError::Disconnected)?;
                }
                let whole = WholeFile { length, verified, attributes, progress };
                Ok(if small {
                    whole.small(&target_file, request, body)?
                } else {
                    whole.large(self, target_file, request, body)?
                })
            }
            PutKind::Part { upload, range } => {
                let open = stream.take().filter(|stream| stream.upload().is(&target_file, &upload));
                target_file.check_condition(request)?;
                let open = match open {
                    Some(open) => open,
                    None => self.uploads.open(target_file, Some(&upload.tag), upload.length)?,
                };
                if request.expects_continue {
                    body.send_continue().map_err(PutError::Disconnected)?;
                }
                let wrong = groups(&open, &range, true, body, progress);
                *stream = Some(open);
                let wrong: Vec<String> = wrong?.iter().map(u64::to_string).collect();
                let put = PutReply::new(202, "the part was received");
                Ok(if wrong.is_empty() { put } else { put.field(WRONG, wrong.join(" ")) })
            }
            PutKind::Finish { upload, blake3 } => {
                let open = stream.take().filter(|stream| stream.upload().is(&target_file, &upload));
                let open = match open {
                    Some(open) => open,
                    None => {
                        target_file.check_condition(request)?;
                        self.uploads.open(target_file, Some(&upload.tag), upload.length)?
                    }
                };
                match open.upload().finish(request, Some(&blake3), &attributes) {
                    Ok(named) => Ok(PutReply::named(named)),
                    Err(FinishError::Missing(missing)) => {
                        Ok(PutReply::new(409, "the file is not complete").field(MISSING, missing))
                    }
                    Err(FinishError::Refused(refused)) => Err(refused.into()),
                }
            }
        }
    }

    /// Answers a query for the state of an upload. `None` if the request is not such a query.
    pub(super) fn answer_upload_query(
        &self,
        request: &Request,
        target: &Target,
    ) -> Option<Decision> {
        let decision = match put::parse_query(request, self.writable.unwrap_or(put::MAX_FILE)) {
            Ok(None) => return None,
            Ok(Some(asked)) => {
                self.may_put(request).and_then(|()| self.describe_upload(request, target, &asked))
            }
            Err(refused) => Err(refused),
        };
        Some(decision.unwrap_or_else(|Refused { status, reason }| {
            text(request, Head::new(status), &format!("{reason}\n"))
        }))
    }

    fn describe_upload(
        &self,
        request: &Request,
        target: &Target,
        asked: &put::Upload,
    ) -> Result<Decision, Refused> {
        if self.root.folder(target.names()).is_ok() {
            let head = Head::new(301).field("Location", format_args!("{}/", target.encoded()));
            return Ok(text(request, head, "that is a directory\n"));
        }
        let target_file = self.target_file(target)?;
        let head =
            Head::new(200).field("Content-Type", UPLOADED).field("Cache-Control", "no-store");
        let head = match target_file.existing()? {
            Some(there) => {
                let head = head.field("ETag", there.tag()).field(LENGTH, there.size);
                head.field(MTIME, there.modified)
            }
            None => head,
        };
        let head = match self.uploads.begun(&target_file, &asked.tag) {
            Some((group, bytes)) => head.field(BEGUN, format_args!("{group} {bytes}")),
            None => head,
        };
        Ok(finish(request, head, Body::Text(self.uploads.encode_state(&target_file, asked)?)))
    }

    /// Returns where a file is to be stored.
    fn target_file(&self, target: &Target) -> Result<PutTarget, Refused> {
        let (name, before) =
            target.names().split_last().ok_or_else(|| Refused::bad("a file has a name"))?;
        let folder = self.root.folder(before).map_err(|lost| match lost {
            FindError::Missing => conflict(
                "there is no such directory; PUT with a slash at the end makes one".to_owned(),
            ),
            other => find_refusal(other),
        })?;
        Ok(PutTarget::new(folder, name, target.encoded()))
    }

    fn put_folder(&self, target: &Target, attributes: &Attributes) -> Result<PutReply, Refused> {
        let (folder, made) = self.root.make(target.names()).map_err(|lost| match lost {
            FindError::Missing => {
                conflict("something that is not a directory has that name".to_owned())
            }
            other => find_refusal(other),
        })?;
        if attributes.mode.is_some() || attributes.modified.is_some() {
            let has = rustix::fs::fstat(&folder).map_err(|errno| failed(&errno.into()))?.st_mode;
            // The owner keeps all permissions. Otherwise nothing more could be stored in the
            // directory.
            let mode = attributes.mode.map_or(has, |mode| mode | 0o700);
            let attributes = Attributes { mode: Some(mode), ..attributes.clone() };
            attributes.apply_to(&folder).map_err(|error| failed(&error))?;
        }
        Ok(if made {
            PutReply::new(201, "created")
        } else {
            PutReply::new(200, "it exists already")
        })
    }
}

/// A file whose bytes are all in one request.
struct WholeFile<'a> {
    length: u64,
    verified: bool,
    attributes: Attributes,
    progress: &'a mut dyn FnMut(u64),
}

impl WholeFile<'_> {
    /// Writes a small file as it arrives.
    fn small(
        self,
        target_file: &PutTarget,
        request: &Request,
        body: &mut BodyReader<'_>,
    ) -> Result<PutReply, PutError> {
        let destination = target_file.destination();
        let length = self.length;
        let refuse =
            |error| PutError::from(target_file.refuse(&at(&destination, length, error), false));
        let mut file = destination.create().map_err(refuse)?;
        let written = self.write(&mut file, body, &refuse);
        let named = written.and_then(|attribute_error| {
            let (version, replaced) = target_file.publish(request)?;
            Ok(PublishedFile { version, replaced, attribute_error })
        });
        if named.is_err() {
            let _ = destination.discard(); // the caller gets the reason
        }
        Ok(PutReply::named(named?))
    }

    fn write(
        self,
        file: &mut File,
        body: &mut BodyReader<'_>,
        refuse: &dyn Fn(io::Error) -> PutError,
    ) -> Result<Option<io::Error>, PutError> {
        let mut room =
            vec![0; usize::try_from(self.length.min(GROUP_BYTES)).expect("a group is in memory")];
        for index in 0..group::count(self.length) {
            let bytes = group::range(self.length, index);
            let content = &mut room
                [..usize::try_from(bytes.end - bytes.start).expect("a group is in memory")];
            let value =
                body.group(self.length, index, content, 0).map_err(PutError::Disconnected)?;
            if self.verified && body.value().map_err(PutError::Disconnected)? != value {
                return Err(wrong().into());
            }
            file.write_all(content).map_err(refuse)?;
            (self.progress)(content.len() as u64);
        }
        let attribute_error = self.attributes.apply_to(&*file).err();
        file.sync_data().map_err(refuse)?;
        Ok(attribute_error)
    }

    /// Writes a large file past the page cache. After an interruption it cannot be resumed.
    fn large(
        self,
        shared: &Shared,
        target_file: PutTarget,
        request: &Request,
        body: &mut BodyReader<'_>,
    ) -> Result<PutReply, PutError> {
        let stream = shared.uploads.open(target_file, None, self.length)?;
        let wrongs = groups(&stream, &(0..self.length), self.verified, body, self.progress)?;
        if !wrongs.is_empty() {
            return Err(wrong().into());
        }
        match stream.upload().finish(request, None, &self.attributes) {
            Ok(named) => Ok(PutReply::named(named)),
            Err(FinishError::Refused(refused)) => Err(refused.into()),
            Err(FinishError::Missing(_)) => unreachable!("all of it came"),
        }
    }
}

/// Stores the groups of a part. Returns the groups that arrived corrupt.
fn groups(
    stream: &UploadStream,
    range: &Range<u64>,
    verified: bool,
    body: &mut BodyReader<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<u64>, PutError> {
    let length = stream.upload().length;
    let mut wrong = Vec::new();
    for index in range.start / GROUP_BYTES..range.end.div_ceil(GROUP_BYTES) {
        let bytes = group::range(length, index);
        let len = usize::try_from(bytes.end - bytes.start).expect("a group is in memory");
        let mut buffer = stream.buffer()?;
        // The first bytes of the first group may have arrived before. If they were dropped
        // meanwhile, the group counts as corrupt.
        let have =
            usize::try_from(range.start.saturating_sub(bytes.start)).expect("within a group");
        let begun =
            if have > 0 { stream.upload().take_begun(index, have) } else { Some(Vec::new()) };
        let is_whole = begun.is_some();
        begun.iter().for_each(|begun| buffer[..have].copy_from_slice(begun));
        let mut take = || -> io::Result<_> {
            let value = body.group(length, index, &mut buffer[..len], have)?;
            Ok((value, if verified { body.value()? } else { value }))
        };
        match take() {
            Ok((value, stated)) if value == stated && is_whole => {
                stream.arrived(index, buffer, len, value)?
            }
            Ok(_) => {
                stream.recycle(buffer);
                wrong.push(index);
            }
            Err(error) => {
                if verified && is_whole {
                    stream.upload().keep_begun(index, &buffer[..body.group_bytes().min(len)]);
                }
                stream.recycle(buffer);
                return Err(PutError::Disconnected(error));
            }
        }
        progress(len as u64);
        if wrong.len() > MAX_WRONG {
            let reason = format!(
                "more than {MAX_WRONG} groups of this part arrived corrupt; check the network \
                 cards and the memory of both machines"
            );
            return Err(Refused { status: 422, reason }.into());
        }
    }
    Ok(wrong)
}

fn wrong() -> Refused {
    Refused { status: 422, reason: "a group arrived corrupt; send it again".to_owned() }
}

fn find_refusal(lost: FindError) -> Refused {
    match lost {
        FindError::Missing => Refused::missing(),
        FindError::Forbidden => {
            Refused { status: 403, reason: "the server may not write there".to_owned() }
        }
        FindError::Busy => Refused { status: 503, reason: "try again soon".to_owned() },
        FindError::Io(error) => failed(&error),
    }
}

fn at(destination: &Destination, bytes: u64, error: io::Error) -> SinkError {
    if error.kind() == io::ErrorKind::WouldBlock {
        return SinkError::Busy(destination.part().to_owned());
    }
    SinkError::at(destination.part(), bytes, error)
}
