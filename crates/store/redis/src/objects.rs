//! What the commands need of the server: its objects.

use sprat_log::Content;
use sprat_wire::elements::{CollectionId, CollectionKind, OwnerKey};
use sprat_wire::entry::Entry;
use sprat_wire::expiry::Time;
use sprat_wire::order::KeyRange;

/// Why a command cannot be executed now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unready {
    /// It may be possible in a moment: the same command is executed again.
    Later(&'static str),
    /// There is no such table any more.
    NoTable,
    /// It is not possible. The text is the reply: a code in capitals, and a sentence.
    Refused(String),
}

/// The reply to a command that makes a collection when there are no more ids near its key.
pub const NO_NUMBER: &str = "ERR there are no more numbers for collections: remove other keys";

/// What a command is going to do with an object that it looks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Nothing.
    Read,
    /// Change or remove it, perhaps.
    Change,
}

/// The objects of a server, as commands use them.
///
/// Everything happens on the server's one thread, so what a command does between two calls of the
/// loop is atomic for all clients. What it found and what it changed may be durable only later: a
/// reply must wait until [`durable`](Self::durable) has reached what
/// [`take_position`](Self::take_position) returns after the command.
pub trait Objects {
    /// Finds an object. An object that has expired is not found. The elements of a collection whose
    /// head is found can be counted and visited.
    ///
    /// # Errors
    /// [`Unready`] when the server may not answer for this object now.
    fn find(
        &mut self,
        table: u32,
        key: &[u8],
        access: Access,
    ) -> Result<Option<Entry<'_>>, Unready>;

    /// Writes an object that was looked for, to [change](Access::Change) it.
    ///
    /// # Errors
    /// [`Unready`] when the object cannot be written now; nothing is changed.
    fn put(&mut self, table: u32, key: &[u8], content: Content<'_>) -> Result<(), Unready>;

    /// Removes an object that was found, to [change](Access::Change) it.
    ///
    /// # Errors
    /// [`Unready`] when the object cannot be removed now; nothing is changed.
    fn remove(&mut self, table: u32, key: &[u8]) -> Result<(), Unready>;

    /// Begins a group of changes: from now on to [`end`](Self::end), they count together or not at
    /// all, and have at most `len` bytes in the log. If `only_removes`, they only remove objects.
    /// All their objects were looked for before, to [change](Access::Change) them.
    ///
    /// # Errors
    /// [`Unready`] when there is no room for them now.
    fn begin(&mut self, len: usize, only_removes: bool) -> Result<(), Unready>;

    /// Returns the largest number of bytes of a group.
    fn most_at_once(&self) -> usize;

    /// Checks that a group that was begun has room for `len` bytes of changes.
    ///
    /// # Errors
    /// [`Unready`] when it has not.
    fn check_room(&mut self, len: usize) -> Result<(), Unready>;

    /// Ends the group that was begun.
    fn end(&mut self);

    /// Returns the id of a new collection whose head will have this key, which was looked for, to
    /// [change](Access::Change) it.
    ///
    /// # Errors
    /// [`Unready`] when the server cannot tell yet, or when there are no more ids.
    fn new_collection(
        &mut self,
        table: u32,
        key: &[u8],
        kind: CollectionKind,
    ) -> Result<CollectionId, Unready>;

    /// Finds an element of a collection of this table whose head was found, or an owner record,
    /// given its key.
    fn find_element(&mut self, table: u32, key: &[u8]) -> Option<Entry<'_>>;

    /// Writes an element of a collection whose head was looked for, to [change](Access::Change) it.
    ///
    /// # Errors
    /// [`Unready`] when the element cannot be written now; nothing is changed.
    fn put_element(&mut self, table: u32, key: &[u8], value: &[u8]) -> Result<(), Unready>;

    /// Removes an element that was found.
    ///
    /// # Errors
    /// [`Unready`] when the element cannot be removed now; nothing is changed.
    fn remove_element(&mut self, table: u32, key: &[u8]) -> Result<(), Unready>;

    /// Returns the number of elements with [keys](sprat_wire::elements::sort_key) in a range, of
    /// collections whose heads were found.
    fn count_elements(&mut self, table: u32, range: &KeyRange<'_>) -> usize;

    /// Passes elements with keys in a range to `visit`, in order. `skip_and_limit` are the number
    /// of those that are left out first, and the largest number of the others.
    fn visit_elements(
        &mut self,
        table: u32,
        range: &KeyRange<'_>,
        skip_and_limit: (usize, usize),
        visit: &mut dyn FnMut(&Entry<'_>),
    );

    /// Returns whether the elements of a table's collections can be counted and visited. After a
    /// restart that takes a while.
    fn has_elements(&self, table: u32) -> bool;

    /// Returns the table and the owner record of a collection whose head was removed or replaced.
    /// The head may have another key now.
    fn take_gone_collection(&mut self) -> Option<(u32, OwnerKey)>;

    /// Returns whether some of these were forgotten since the last call, because there were too
    /// many.
    fn forgot_gone_collections(&mut self) -> bool;

    /// Appends about `limit` keys of the objects in a table whose positions are above `after` (any,
    /// for `None`). Returns the position up to which that is all; `None` at the end. The keys of
    /// objects that have expired are left out.
    ///
    /// # Errors
    /// [`Unready`] when the server may not answer for these objects now.
    fn keys(
        &mut self,
        table: u32,
        after: Option<u64>,
        limit: usize,
        found: &mut Vec<Vec<u8>>,
    ) -> Result<Option<u64>, Unready>;

    /// Returns the number of objects in a table, with those that have expired and are still there.
    fn count(&self, table: u32) -> u64;

    /// Returns the time by which objects expire.
    fn time(&mut self) -> Time;

    /// Returns the log position for which a reply must wait that reveals what was found, missed or
    /// changed since the last call; zero if it need not wait.
    fn take_position(&mut self) -> u64;

    /// Returns the log position up to which clients may learn of everything.
    fn durable(&self) -> u64;

    /// Returns why nothing can become durable any more; `None` while it can.
    fn stopped(&self) -> Option<String>;
}
