//! A command that is being executed.

use crate::objects::{Access, Objects, Unready};
use crate::score::double;
use crate::session::{DATABASES, Server, Session};
use sprat_log::Content;
use sprat_net::Nanos;
use sprat_resp::{Command, ReplyWriter, integer};
use sprat_wire::entry::{Entry, HEADER_BYTES};
use sprat_wire::expiry::{EXPIRY_BYTES, MAX_TIME, NEVER, Time};
use sprat_wire::value::{Number, ValueType};
use sprat_wire::{MAX_KEY, MAX_VALUE};
use std::borrow::Cow;
use std::time::Duration;

/// Limit on the bytes of values or keys in one reply.
pub const MAX_REPLY: usize = 16 << 20;

/// Limit on the length of a pattern of keys, in bytes. Matching a key takes as many steps as the
/// product of their lengths.
pub const MAX_PATTERN: usize = 1024;

/// Number of keys that a command reads or removes at once. Other clients may see what a command
/// with more keys has done so far.
pub const KEYS_AT_ONCE: usize = 16 << 10;

/// The reply to an argument that must be an integer and is none.
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// The reply to options that are unknown, or that exclude one another.
pub(crate) const SYNTAX: &str = "ERR syntax error";

/// The reply to a string that would be longer than [`MAX_VALUE`], which `CONFIG GET` shows.
pub(crate) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// Why a command waits whose database has no table yet.
pub(crate) const NO_TABLE: &str = "the database's table is being made";

/// The reply to a number of keys that is none.
const NO_KEYS: &str = "ERR numkeys should be greater than 0";

/// The reply to a number that must not be negative.
pub(crate) const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";

/// Limit on the milliseconds for which a command waits: some 146 years.
const MAX_TIMEOUT: f64 = (1_u64 << 62) as f64 / 1e6;

/// Limit on the keys for which a command waits.
pub(crate) const MAX_WAITED: usize = 1024;

/// The largest number of bytes of an entry in the log, besides key and value; also of a tombstone.
pub(crate) const ENTRY: usize = HEADER_BYTES + size_of::<u64>();
const _: () = assert!(EXPIRY_BYTES <= size_of::<u64>());

/// Returns the reply to a command for which the server has not become ready.
pub(crate) fn try_again(reason: &str) -> String {
    format!("TRYAGAIN the server is not ready: {reason}")
}

/// Finds an object in the table of a database that need not be the session's.
pub(crate) fn find_in<'a>(
    objects: &'a mut dyn Objects,
    (database, table): (usize, u32),
    key: &[u8],
    access: Access,
) -> Result<Option<Entry<'a>>, Failure> {
    objects.find(table, key, access).map_err(|unready| match unready {
        Unready::NoTable => Failure::NoTable(database),
        other => Failure::Unready(other),
    })
}

/// Why a command is not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server is not ready for it.
    Unready(Unready),
    /// It is refused; the text is the reply.
    Error(Cow<'static, str>),
    /// The table of this database is not known, or is no longer there.
    NoTable(usize),
    /// It goes on in the next iteration of the loop, from its [`Resume`], so that others are not
    /// kept waiting.
    Continue,
    /// It waits until one of these keys has a list or a sorted set; or it still does, if there are
    /// none.
    Wait(Vec<Vec<u8>>),
}

impl From<Unready> for Failure {
    fn from(unready: Unready) -> Self {
        Self::Unready(unready)
    }
}

impl From<&'static str> for Failure {
    fn from(text: &'static str) -> Self {
        Self::Error(text.into())
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Error(text.into())
    }
}

/// How far a command has come that goes on later.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    /// The number of arguments that are done.
    pub(crate) done: usize,
    /// Whether the reply so far remains as it is.
    pub(crate) keeps_reply: bool,
    /// A sum over what is done.
    pub(crate) count: i64,
    /// The position up to which objects were scanned.
    pub(crate) after: Option<u64>,
    /// The keys that were found.
    pub(crate) found: Vec<Vec<u8>>,
    /// The bytes of these keys, or of the values.
    pub(crate) bytes: usize,
    /// Until when it waits for an element, if it does.
    pub(crate) wait: Option<Deadline>,
}

/// The end of a wait; `None` if there is none.
pub(crate) type Deadline = Option<Nanos>;

/// A command, and all that it may use.
pub(crate) struct Call<'a> {
    pub(crate) command: Command<'a>,
    /// The command's name, in small letters.
    pub(crate) name: &'static str,
    pub(crate) objects: &'a mut dyn Objects,
    pub(crate) reply: ReplyWriter<'a>,
    pub(crate) session: &'a mut Session,
    pub(crate) server: &'a mut Server,
    pub(crate) resume: &'a mut Resume,
    /// The table of the session's database, if the command uses it.
    pub(crate) table: u32,
    /// Limit on the bytes of keys or values in the reply: [`MAX_REPLY`], or less while connections
    /// hold much memory.
    pub(crate) room: usize,
    /// Whether what the command changes is in a group already, for example of a transaction.
    pub(crate) in_group: bool,
    /// The time of the loop's iteration.
    pub(crate) now: Nanos,
}

impl<'a> Call<'a> {
    /// Returns an argument that the command has by its arity.
    pub(crate) fn argument(&self, at: usize) -> &'a [u8] {
        self.command.get(at).expect("the arity was checked")
    }

    /// Returns an argument that must be a key.
    pub(crate) fn key(&self, at: usize) -> Result<&'a [u8], Failure> {
        let key = self.argument(at);
        if key.len() > MAX_KEY {
            return Err(format!("ERR a key has {} bytes; the limit is {MAX_KEY}", key.len()).into());
        }
        Ok(key)
    }

    /// Does something with each argument, all of which are keys. After [`KEYS_AT_ONCE`] others have
    /// their turn.
    pub(crate) fn each_key(
        &mut self,
        act: impl Fn(&mut Self, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for at in 1 + self.resume.done..self.command.len() {
            act(self, self.key(at)?)?;
            self.resume.done += 1;
            if self.resume.done.is_multiple_of(KEYS_AT_ONCE) {
                return Err(Failure::Continue);
            }
        }
        Ok(())
    }

    /// Returns an argument that must be an integer.
    pub(crate) fn integer(&self, at: usize) -> Result<i64, Failure> {
        integer(self.argument(at)).ok_or_else(|| NOT_AN_INTEGER.into())
    }

    /// Returns an argument that must be an integer from zero on.
    ///
    /// # Errors
    /// It is none; `text` is the reply.
    pub(crate) fn natural(&self, at: usize, text: &'static str) -> Result<usize, Failure> {
        let number = integer(self.argument(at)).and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| text.into())
    }

    /// Returns the position of the first key, and the position behind the last one, of a command
    /// that has the number of its keys before them.
    ///
    /// # Errors
    /// The number is none.
    pub(crate) fn numbered_keys(&self, at: usize) -> Result<(usize, usize), Failure> {
        let count = self.natural(at, NO_KEYS)?;
        if count == 0 {
            return Err(NO_KEYS.into());
        }
        Ok((at + 1, (at + 1).saturating_add(count)))
    }

    /// Returns an argument that must be a time to wait in seconds. Zero is for ever.
    pub(crate) fn timeout(&self, at: usize) -> Result<Deadline, Failure> {
        let seconds =
            double(self.argument(at)).ok_or("ERR timeout is not a float or out of range")?;
        let millis = (seconds * 1000.0).ceil();
        if millis < 0.0 {
            return Err("ERR timeout is negative".into());
        }
        if millis >= MAX_TIMEOUT {
            return Err("ERR timeout is out of range".into());
        }
        let wait = Duration::try_from_secs_f64(millis / 1000.0).expect("in range");
        Ok((millis > 0.0).then(|| self.now + wait))
    }

    /// Waits until one of these keys has a list or a sorted set. Returns when the time is over, or
    /// when there is no waiting, as in transactions.
    pub(crate) fn wait_for(
        &mut self,
        keys: impl Iterator<Item = &'a [u8]>,
        until: Deadline,
    ) -> Result<(), Failure> {
        if self.in_group {
            return Ok(());
        }
        match self.resume.wait {
            None => {
                let keys: Vec<_> = keys.map(<[u8]>::to_vec).collect();
                if keys.len() > MAX_WAITED {
                    return Err(format!("ERR a command waits for up to {MAX_WAITED} keys").into());
                }
                self.resume.wait = Some(until);
                Err(Failure::Wait(keys))
            }
            Some(until) if until.is_some_and(|until| until <= self.now) => Ok(()),
            Some(_) => Err(Failure::Wait(Vec::new())),
        }
    }

    /// Returns an argument that must be an integer of 32 bits.
    pub(crate) fn small_integer(&self, at: usize) -> Result<i32, Failure> {
        i32::try_from(self.integer(at)?).map_err(|_| {
            let (least, most) = (i32::MIN, i32::MAX);
            let range = format!("value must between {least} and {most}");
            format!("ERR value is out of range, {range}").into()
        })
    }

    /// Returns an argument that must be the number of a database.
    pub(crate) fn database(&self, at: usize) -> Result<usize, Failure> {
        let number = usize::try_from(self.small_integer(at)?).ok();
        let database = number.filter(|number| *number < DATABASES);
        database.ok_or_else(|| "ERR DB index is out of range".into())
    }

    /// Finds the object of a key.
    pub(crate) fn find(
        &mut self,
        key: &[u8],
        access: Access,
    ) -> Result<Option<Entry<'_>>, Unready> {
        self.objects.find(self.table, key, access)
    }

    /// Writes a string that expires then.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], expires: Time) -> Result<(), Failure> {
        if value.len() > MAX_VALUE {
            return Err(TOO_LONG.into());
        }
        let content = Content { value, value_type: ValueType::Bytes, expires };
        Ok(self.objects.put(self.table, key, content)?)
    }

    /// Makes changes that count together or not at all, of at most `len` bytes in the log, and
    /// perhaps only removals.
    pub(crate) fn together(
        &mut self,
        (len, only_removes): (usize, bool),
        change: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.in_group {
            self.objects.check_room(len)?;
            return change(self);
        }
        self.objects.begin(len, only_removes)?;
        self.in_group = true;
        let done = change(self);
        self.in_group = false;
        self.objects.end();
        done
    }

    /// Returns the table of a database that is not the session's.
    pub(crate) fn table_of(&self, database: usize) -> Result<u32, Failure> {
        self.server.tables[database].ok_or(Failure::NoTable(database))
    }

    /// Returns the time at which an object expires, given as the number of a command: seconds or
    /// milliseconds, since 1970 or from now. It may be zero or less, and is at most [`MAX_TIME`].
    ///
    /// # Errors
    /// The milliseconds do not fit 64 bits.
    pub(crate) fn expiry(&mut self, number: i64, unit: Unit) -> Result<i64, Failure> {
        let millis = if unit.seconds { number.checked_mul(1000) } else { Some(number) };
        let now = i64::try_from(self.objects.time()).expect("at most MAX_TIME");
        let begin = if unit.relative { now } else { 0 };
        millis
            .and_then(|millis| millis.checked_add(begin))
            .map(|time| time.min(MAX_TIME.cast_signed()))
            .ok_or_else(|| self.invalid_expiry())
    }

    /// Returns the error for an expiry that is out of range.
    pub(crate) fn invalid_expiry(&self) -> Failure {
        format!("ERR invalid expire time in '{}' command", self.name).into()
    }

    /// Adds the bytes of a key or value to those of the reply.
    ///
    /// # Errors
    /// The reply would be too long.
    pub(crate) fn add_to_reply(&mut self, bytes: usize) -> Result<(), Failure> {
        self.resume.bytes += bytes;
        if self.resume.bytes <= self.room {
            return Ok(());
        }
        let room = self.room;
        let reason = match room {
            MAX_REPLY => "ask for less at once",
            _ => "clients have to take other replies first; ask for less, or later",
        };
        Err(format!("ERR the reply is longer than {room} bytes: {reason}").into())
    }

    /// Returns an argument that must be a pattern of keys.
    pub(crate) fn pattern(&self, at: usize) -> Result<&'a [u8], Failure> {
        let pattern = self.argument(at);
        if pattern.len() > MAX_PATTERN {
            let len = pattern.len();
            return Err(format!("ERR a pattern has {len} bytes; the limit is {MAX_PATTERN}").into());
        }
        Ok(pattern)
    }
}

/// What the number of an expiry counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unit {
    pub(crate) seconds: bool,
    /// Whether it counts from now.
    pub(crate) relative: bool,
}

/// Returns the string that an object is to Redis clients. A counter of the store's own clients is
/// its number in digits.
pub(crate) fn text<'a>(entry: &Entry<'a>) -> Cow<'a, [u8]> {
    match Number::of(entry.value_type, entry.value) {
        None => Cow::Borrowed(entry.value),
        Some(number) => Cow::Owned(number.to_string().into_bytes()),
    }
}

/// Returns when an object expires as Redis counts: milliseconds since 1970, or `None` for never.
pub(crate) fn expires(entry: &Entry<'_>) -> Option<i64> {
    (entry.expires != NEVER).then(|| entry.expires.cast_signed())
}
