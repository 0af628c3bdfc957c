//! What is sent to a server: files, whole or in parts, into the directory that it shares.
//!
//! Nothing has the name of a file before all of it is here, right and durable. A refusal before a
//! body leaves the connection as it is where the body is short; else the connection ends, so that
//! nobody waits for what nobody wants.

mod intake;
mod parts;
mod uploads;

pub use parts::KEPT_FOR;
pub(super) use parts::Parts;
pub(super) use uploads::{Lane, Uploads};
pub use uploads::{MAX_LANES, MAX_UPLOADS};

use super::access::{Proof, Right};
use super::connection::{Connection, Sent, Then};
use super::decide::{Body, Decision, finish, text};
use super::put::{self, What};
use super::root::Lost;
use super::shared::Shared;
use crate::file::{Attributes, Place, SinkError};
use crate::group::{self, GROUP_BYTES};
use intake::Intake;
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
use uploads::{Ending, Named, Spot, conflict, failed};

/// Longest file that is written in one go, without a ring and without a journal, bytes.
const SMALL: u64 = 4 << 20;

/// Most bytes of a body that nobody wants which are read all the same, so that the connection goes
/// on.
const MAX_SKIPPED: u64 = 8 << 20;

/// Most groups of a part that may arrive wrong: more are no accident.
const MAX_WRONG: usize = 64;

/// Seconds after which one who was refused for want of room may try again.
const RETRY_AFTER: u64 = 2;

/// Why a body is not taken.
enum Stop {
    Refused(Refused),
    /// The connection broke, or was too slow.
    Gone(io::Error),
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// What is said of what was put.
struct Put {
    head: Head,
    text: String,
}

impl Put {
    fn new(status: u16, text: &str) -> Self {
        Self { head: Head::new(status), text: text.to_owned() }
    }

    fn field(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.head = self.head.field(name, value);
        self
    }

    /// A file has its name.
    fn named((version, replaced, refused): Named) -> Self {
        let (status, text) = if replaced { (200, "replaced") } else { (201, "created") };
        let put = Self::new(status, text).field("ETag", version.tag());
        match refused {
            Some(error) => put.field(
                NOTE,
                format_args!("time, permissions or extended attributes cannot be set: {error}"),
            ),
            None => put,
        }
    }
}

impl Connection {
    /// Takes what a PUT brings.
    pub(super) fn receive(&mut self, request: &Request, began: Instant) -> Then {
        let shared = self.shared.clone();
        let address = request.target.as_ref().map_or_else(|| "*".to_owned(), Target::encoded);
        let tcp = self.channel.tcp();
        let verified =
            request.field("content-type").is_some_and(|kind| kind.contains(group::VERIFIED));
        let mut going =
            shared.transfers.begin(tcp, self.peer, &address, (verified, true), request.length);
        let (mut lane, patience) = (self.lane.take(), shared.limits.patience);
        let mut intake = Intake::new(&mut self.channel, &mut self.came, request.length, patience);
        let taken = shared.put(request, &mut intake, &mut lane, &mut |bytes| going.add(bytes));
        // Who waits for a word before the body may send it all the same, or not.
        let skipped = intake.left() == 0 || (!request.expects && intake.skip(MAX_SKIPPED));
        self.lane = lane;
        let bytes = going.sent();
        let (put, error) = match taken {
            Ok(put) => (put, None),
            Err(Stop::Refused(Refused { status, what })) => {
                let put = Put::new(status, &what);
                let put = if status == 503 { put.field("Retry-After", RETRY_AFTER) } else { put };
                let put = if status == 401 {
                    put.field("WWW-Authenticate", "Bearer realm=\"sprat\"")
                } else {
                    put
                };
                let put = if status == 405 { put.field("Allow", shared.allowed()) } else { put };
                (put, Some(what))
            }
            Err(Stop::Gone(error)) => {
                let error = format!("the connection broke: {error}");
                going.end(&error);
                self.tell(
                    Some((request, &address)),
                    Sent { bytes, verified, error: Some(error), ..Sent::default() },
                    began,
                );
                return Then::Abort;
            }
        };
        going.end(error.as_deref().unwrap_or("done"));
        drop(going);
        let keep = request.keep && skipped && self.stays_open();
        let body = format!("{}\n", put.text).into_bytes();
        let head = put
            .head
            .field("Content-Type", "text/plain; charset=utf-8")
            .field("Content-Length", body.len());
        let status = head.status();
        let sent = self.channel.send(&[&head.finish(keep), &body]);
        let error = error.or_else(|| sent.as_ref().err().map(ToString::to_string));
        self.tell(
            Some((request, &address)),
            Sent { status, bytes, verified, error, ..Sent::default() },
            began,
        );
        match (sent, keep) {
            (Err(_), _) => Then::Abort,
            (Ok(()), true) => Then::Next,
            (Ok(()), false) if skipped => Then::Close,
            (Ok(()), false) => Then::Drain,
        }
    }
}

impl Shared {
    /// Who may put something here, if anything may be.
    fn may_put(&self, request: &Request) -> Result<(), Refused> {
        let refused = |status, what: &str| Err(Refused { status, what: what.to_owned() });
        match self.tokens().check(request) {
            None | Some(Proof::Ticket) => return refused(401, "a token is wanted"),
            Some(Proof::Head(_, Right::Read) | Proof::Address(_, Right::Read)) => {
                return refused(403, "this token is for reading alone");
            }
            // A page that some browser shows may be anybody's, whatever name it came by.
            Some(Proof::None) if request.field("origin").is_some() => {
                return refused(
                    403,
                    "pages in browsers put nothing here where no token is asked for",
                );
            }
            Some(_) => {}
        }
        if self.writable.is_none() {
            return refused(
                405,
                "files are only given here: sprat share --writable takes them too",
            );
        }
        Ok(())
    }

    /// Takes what a request brings, telling of bytes as they come.
    fn put(
        &self,
        request: &Request,
        intake: &mut Intake<'_>,
        lane: &mut Option<Lane>,
        came: &mut dyn FnMut(u64),
    ) -> Result<Put, Stop> {
        self.may_put(request)?;
        let (what, mut attributes) = put::read(request, self.writable.unwrap_or(0))?;
        if !self.xattrs && !attributes.xattrs.is_empty() {
            return Err(Refused {
                status: 403,
                what: "extended attributes are not taken: share --xattrs".to_owned(),
            }
            .into());
        }
        if what == What::Folder {
            attributes.xattrs = Xattrs::default(); // of files only
        }
        let target = request.target.as_ref().ok_or_else(|| Refused::bad("nothing is put there"))?;
        if what == What::Folder {
            return Ok(self.put_folder(target, &attributes)?);
        }
        let spot = self.spot(target)?;
        match what {
            What::Folder => unreachable!("done"),
            What::Whole { length, verified } => {
                spot.may_be(request)?;
                let small = length <= SMALL;
                if request.expects {
                    intake.invite().map_err(Stop::Gone)?;
                }
                let whole = Whole { length, verified, attributes, came };
                Ok(if small {
                    whole.small(&spot, request, intake)?
                } else {
                    whole.large(self, spot, request, intake)?
                })
            }
            What::Part { upload, range } => {
                let open = lane.take().filter(|lane| lane.upload().is(&spot, &upload));
                spot.may_be(request)?;
                let open = match open {
                    Some(open) => open,
                    None => self.uploads.open(spot, Some(&upload.tag), upload.length)?,
                };
                if request.expects {
                    intake.invite().map_err(Stop::Gone)?;
                }
                let wrong = groups(&open, &range, true, intake, came);
                *lane = Some(open);
                let wrong: Vec<String> = wrong?.iter().map(u64::to_string).collect();
                let put = Put::new(202, "this part is here");
                Ok(if wrong.is_empty() { put } else { put.field(WRONG, wrong.join(" ")) })
            }
            What::End { upload, blake3 } => {
                let open = lane.take().filter(|lane| lane.upload().is(&spot, &upload));
                let open = match open {
                    Some(open) => open,
                    None => {
                        spot.may_be(request)?;
                        self.uploads.open(spot, Some(&upload.tag), upload.length)?
                    }
                };
                match open.upload().finish(request, Some(&blake3), &attributes) {
                    Ok(named) => Ok(Put::named(named)),
                    Err(Ending::Missing(missing)) => {
                        Ok(Put::new(409, "some of it is not here").field(MISSING, missing))
                    }
                    Err(Ending::Refused(refused)) => Err(refused.into()),
                }
            }
        }
    }

    /// Answers what there is of an upload.
    pub(super) fn upload_asked(&self, request: &Request, target: &Target) -> Option<Decision> {
        let told = match put::asked(request, self.writable.unwrap_or(put::MAX_FILE)) {
            Ok(None) => return None,
            Ok(Some(asked)) => {
                self.may_put(request).and_then(|()| self.tell_upload(request, target, &asked))
            }
            Err(refused) => Err(refused),
        };
        Some(told.unwrap_or_else(|Refused { status, what }| {
            text(request, Head::new(status), &format!("{what}\n"))
        }))
    }

    fn tell_upload(
        &self,
        request: &Request,
        target: &Target,
        asked: &put::Upload,
    ) -> Result<Decision, Refused> {
        if self.root.folder(target.names()).is_ok() {
            let head = Head::new(301).field("Location", format_args!("{}/", target.encoded()));
            return Ok(text(request, head, "that is a directory\n"));
        }
        let spot = self.spot(target)?;
        let head =
            Head::new(200).field("Content-Type", UPLOADED).field("Cache-Control", "no-store");
        let head = match spot.there()? {
            Some(there) => {
                let head = head.field("ETag", there.tag()).field(LENGTH, there.size);
                head.field(MTIME, there.modified)
            }
            None => head,
        };
        let head = match self.uploads.begun(&spot, &asked.tag) {
            Some((group, bytes)) => head.field(BEGUN, format_args!("{group} {bytes}")),
            None => head,
        };
        Ok(finish(request, head, Body::Text(self.uploads.tell(&spot, asked)?)))
    }

    /// Where a file is put.
    fn spot(&self, target: &Target) -> Result<Spot, Refused> {
        let (name, before) =
            target.names().split_last().ok_or_else(|| Refused::bad("a file has a name"))?;
        let folder = self.root.folder(before).map_err(|lost| match lost {
            Lost::Missing => conflict(
                "there is no such directory; PUT with a slash at the end makes one".to_owned(),
            ),
            other => lost_refused(other),
        })?;
        Ok(Spot::new(folder, name, target.encoded()))
    }

    fn put_folder(&self, target: &Target, attributes: &Attributes) -> Result<Put, Refused> {
        let (folder, made) = self.root.make(target.names()).map_err(|lost| match lost {
            Lost::Missing => conflict("there is something else of that name".to_owned()),
            other => lost_refused(other),
        })?;
        if attributes.mode.is_some() || attributes.modified.is_some() {
            let has = rustix::fs::fstat(&folder).map_err(|errno| failed(&errno.into()))?.st_mode;
            // Its owner's permissions stay in any case: else nothing more could be put there.
            let mode = attributes.mode.map_or(has, |mode| mode | 0o700);
            let attributes = Attributes { mode: Some(mode), ..attributes.clone() };
            attributes.give(&folder).map_err(|error| failed(&error))?;
        }
        Ok(if made { Put::new(201, "created") } else { Put::new(200, "it is there") })
    }
}

/// A file that comes at once.
struct Whole<'a> {
    length: u64,
    verified: bool,
    attributes: Attributes,
    came: &'a mut dyn FnMut(u64),
}

impl Whole<'_> {
    /// Writes it as it comes.
    fn small(self, spot: &Spot, request: &Request, intake: &mut Intake<'_>) -> Result<Put, Stop> {
        let place = spot.place();
        let length = self.length;
        let refuse = |error| Stop::from(spot.refuse(&at(&place, length, error), false));
        let mut file = place.create().map_err(refuse)?;
        let written = self.write(&mut file, intake, &refuse);
        let named = written.and_then(|refused| {
            let (version, replaced) = spot.publish(request)?;
            Ok((version, replaced, refused))
        });
        if named.is_err() {
            let _ = place.discard(); // the reason is told
        }
        Ok(Put::named(named?))
    }

    fn write(
        self,
        file: &mut File,
        intake: &mut Intake<'_>,
        refuse: &dyn Fn(io::Error) -> Stop,
    ) -> Result<Option<io::Error>, Stop> {
        let mut room =
            vec![0; usize::try_from(self.length.min(GROUP_BYTES)).expect("a group is in memory")];
        for index in 0..group::count(self.length) {
            let bytes = group::range(self.length, index);
            let content = &mut room
                [..usize::try_from(bytes.end - bytes.start).expect("a group is in memory")];
            let value = intake.group(self.length, index, content, 0).map_err(Stop::Gone)?;
            if self.verified && intake.value().map_err(Stop::Gone)? != value {
                return Err(wrong().into());
            }
            file.write_all(content).map_err(refuse)?;
            (self.came)(content.len() as u64);
        }
        let refused = self.attributes.give(&*file).err();
        file.sync_data().map_err(refuse)?;
        Ok(refused)
    }

    /// The same past the page cache. What has come of it is of no use after an interruption.
    fn large(
        self,
        shared: &Shared,
        spot: Spot,
        request: &Request,
        intake: &mut Intake<'_>,
    ) -> Result<Put, Stop> {
        let lane = shared.uploads.open(spot, None, self.length)?;
        let wrongs = groups(&lane, &(0..self.length), self.verified, intake, self.came)?;
        if !wrongs.is_empty() {
            return Err(wrong().into());
        }
        match lane.upload().finish(request, None, &self.attributes) {
            Ok(named) => Ok(Put::named(named)),
            Err(Ending::Refused(refused)) => Err(refused.into()),
            Err(Ending::Missing(_)) => unreachable!("all of it came"),
        }
    }
}

/// Takes the groups of a part; gives those that arrived wrong.
fn groups(
    lane: &Lane,
    range: &Range<u64>,
    verified: bool,
    intake: &mut Intake<'_>,
    came: &mut dyn FnMut(u64),
) -> Result<Vec<u64>, Stop> {
    let length = lane.upload().length;
    let mut wrong = Vec::new();
    for index in range.start / GROUP_BYTES..range.end.div_ceil(GROUP_BYTES) {
        let bytes = group::range(length, index);
        let len = usize::try_from(bytes.end - bytes.start).expect("a group is in memory");
        let mut buffer = lane.buffer()?;
        // The first may go on within a group; if its beginning is not here any more, it comes out
        // wrong.
        let have =
            usize::try_from(range.start.saturating_sub(bytes.start)).expect("within a group");
        let begun = if have > 0 { lane.upload().take_begun(index, have) } else { Some(Vec::new()) };
        let is_whole = begun.is_some();
        begun.iter().for_each(|begun| buffer[..have].copy_from_slice(begun));
        let mut take = || -> io::Result<_> {
            let value = intake.group(length, index, &mut buffer[..len], have)?;
            Ok((value, if verified { intake.value()? } else { value }))
        };
        match take() {
            Ok((value, told)) if value == told && is_whole => {
                lane.arrived(index, buffer, len, value)?
            }
            Ok(_) => {
                lane.recycle(buffer);
                wrong.push(index);
            }
            Err(error) => {
                if verified && is_whole {
                    lane.upload().keep_begun(index, &buffer[..intake.here().min(len)]);
                }
                lane.recycle(buffer);
                return Err(Stop::Gone(error));
            }
        }
        came(len as u64);
        if wrong.len() > MAX_WRONG {
            let what = format!(
                "more than {MAX_WRONG} groups of this part arrive wrong; look at the network cards and the memory on the way"
            );
            return Err(Refused { status: 422, what }.into());
        }
    }
    Ok(wrong)
}

fn wrong() -> Refused {
    Refused {
        status: 422,
        what: "a group arrived with another value than was told; send it again".to_owned(),
    }
}

fn lost_refused(lost: Lost) -> Refused {
    match lost {
        Lost::Missing => Refused::missing(),
        Lost::Forbidden => {
            Refused { status: 403, what: "the server may not write there".to_owned() }
        }
        Lost::Busy => Refused { status: 503, what: "try again soon".to_owned() },
        Lost::Io(error) => failed(&error),
    }
}

fn at(place: &Place, bytes: u64, error: io::Error) -> SinkError {
    if error.kind() == io::ErrorKind::WouldBlock {
        return SinkError::Busy(place.part().to_owned());
    }
    SinkError::at(place.part(), bytes, error)
}
