//! Collections, and their elements in the log.
//!
//! The hashes, lists, sets and sorted sets of Redis clients are collections. The object of a
//! collection's key is its *head*: its value is the [`CollectionId`], its type
//! [`Collection`](crate::value::ValueType::Collection). The collection's elements are objects of a
//! second table, see [`ELEMENTS`], each with a key that begins with the collection's id. So a
//! change of one element writes this element, however many others there are, and a collection gets
//! another key, or an expiry, when its head alone is written.
//!
//! Beside the elements stands the collection's [owner record](CollectionId::owner), whose value is
//! the key of the head. Elements of a collection whose head is gone are removed one after another:
//! their owner record shows which head to look for.
//!
//! | Kind | Key of an element, behind the id | Value |
//! |---|---|---|
//! | hash | the field | the field's value |
//! | set | the member | nothing |
//! | sorted set | the member | the score, a little-endian `f64` |
//! | list | a label; labels are in the order of the list | the element |

use crate::index::Field;
use crate::value::NUMBER_BYTES;
use std::borrow::Cow;

/// The bit that distinguishes the id of the table of elements from the id of the table that has the
/// heads. The bit is clear in every table's own id.
pub const ELEMENTS: u32 = 1 << 29;

/// Bytes of a collection's id.
pub const COLLECTION_ID_BYTES: usize = size_of::<u64>();
const _: () = assert!(COLLECTION_ID_BYTES == NUMBER_BYTES);

/// Bits of an id below its place: the number, and the kind.
const NUMBER_BITS: u32 = 40;
const KIND_BITS: u32 = 8;
pub(crate) const PLACE_BITS: u32 = u64::BITS - NUMBER_BITS - KIND_BITS;

/// The least number of a collection that a backup has brought back. The others have lower ones, so
/// that clients can make collections meanwhile.
const RESTORED: u64 = 1 << (NUMBER_BITS - 1);

/// The kind of a collection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum CollectionKind {
    /// Values by field.
    Hash = 1,
    /// Values in an order that clients choose.
    List = 2,
    /// Members.
    Set = 3,
    /// Members in the order of their scores.
    SortedSet = 4,
}

/// The number of a collection, which no other collection of its table has.
///
/// From its highest bit on it has the *place*, which is the first 16 bits of the
/// [position](crate::tablet::position) that the head had when the collection was made; a number;
/// and the kind. Elements lie at the first position of their place, so a tablet that begins and
/// ends between two places has all elements of its collections.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CollectionId(u64);

impl CollectionId {
    /// Returns the id with this number of a collection whose head is at a position; `None` if the
    /// number is too large.
    #[must_use]
    pub fn new(kind: CollectionKind, position: u64, number: u64) -> Option<Self> {
        let place = first_of_place(position);
        (number < RESTORED).then_some(Self(place | number << KIND_BITS | kind as u64))
    }

    /// Returns such an id of a collection that a backup brings back.
    #[must_use]
    pub fn restored(kind: CollectionKind, position: u64, number: u64) -> Option<Self> {
        Self::new(kind, position, number).map(|Self(id)| Self(id | RESTORED << KIND_BITS))
    }

    /// Returns the id that is the value of a head, or with which the key of an element begins;
    /// `None` if these bytes do not begin with one.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (id, _) = bytes.split_first_chunk()?;
        let id = Self(u64::from_be_bytes(*id));
        id.parse_kind().map(|_| id)
    }

    fn parse_kind(self) -> Option<CollectionKind> {
        match self.0 & ((1 << KIND_BITS) - 1) {
            1 => Some(CollectionKind::Hash),
            2 => Some(CollectionKind::List),
            3 => Some(CollectionKind::Set),
            4 => Some(CollectionKind::SortedSet),
            _ => None,
        }
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(self) -> CollectionKind {
        self.parse_kind().expect("an id has a kind")
    }

    /// Returns the number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0 << PLACE_BITS >> (PLACE_BITS + KIND_BITS)
    }

    /// Returns the id's bytes, which are the value of the head.
    #[must_use]
    pub fn bytes(self) -> [u8; COLLECTION_ID_BYTES] {
        self.0.to_be_bytes()
    }

    /// Returns the key of the owner record. It is below the keys of all elements of the collection,
    /// and above those of collections that have lower numbers at the same place.
    #[must_use]
    pub fn owner(self) -> OwnerKey {
        (self.0 >> KIND_BITS << KIND_BITS).to_be_bytes()
    }

    /// Returns the range of the keys of all elements.
    #[must_use]
    pub fn range(self) -> [[u8; COLLECTION_ID_BYTES]; 2] {
        [self.bytes(), (self.0 + 1).to_be_bytes()]
    }

    /// Returns the key of an element.
    #[must_use]
    pub fn element(self, name: &[u8]) -> Vec<u8> {
        [&self.bytes(), name].concat()
    }
}

/// The key of an owner record.
pub type OwnerKey = [u8; COLLECTION_ID_BYTES];

/// Returns the key of the owner record that belongs to an entry of a table of elements, given the
/// entry's key; `None` if no such entry has this key.
#[must_use]
pub fn owner_of(key: &[u8]) -> Option<OwnerKey> {
    is_owner(key)?;
    let (id, _) = key.split_first_chunk()?;
    Some((u64::from_be_bytes(*id) >> KIND_BITS << KIND_BITS).to_be_bytes())
}

/// Returns bytes that are above the keys of an owner record and of all its elements, and below the
/// keys of all later collections.
#[must_use]
pub fn end_of(owner: OwnerKey) -> OwnerKey {
    (u64::from_be_bytes(owner) | ((1 << KIND_BITS) - 1)).to_be_bytes()
}

/// Returns bytes below and above the keys of all collections with the place of a position, except
/// those that a backup has brought back.
#[must_use]
pub fn place(position: u64) -> [[u8; COLLECTION_ID_BYTES]; 2] {
    let first = first_of_place(position);
    [first, first | RESTORED << KIND_BITS].map(u64::to_be_bytes)
}

/// Returns the number of the collection to which an entry of a table of elements belongs, given the
/// entry's key; `None` if no such entry has this key.
#[must_use]
pub fn number_of(key: &[u8]) -> Option<u64> {
    owner_of(key).map(|owner| CollectionId(u64::from_be_bytes(owner)).number())
}

/// Returns whether the key of an entry in a table of elements is that of an owner record; `None` if
/// no such entry has this key.
#[must_use]
pub fn is_owner(key: &[u8]) -> Option<bool> {
    let (id, rest) = key.split_first_chunk::<COLLECTION_ID_BYTES>()?;
    match id.last() {
        Some(0) => rest.is_empty().then_some(true),
        _ => CollectionId::of(id).map(|_| false),
    }
}

/// Returns the position of an element or owner record in its table; zero if `key` is the key of
/// none.
#[must_use]
pub fn position(key: &[u8]) -> u64 {
    let Some((id, _)) = key.split_first_chunk() else { return 0 };
    first_of_place(u64::from_be_bytes(*id))
}

/// Returns the first position of the place of a position, or of an id.
fn first_of_place(position: u64) -> u64 {
    position >> (u64::BITS - PLACE_BITS) << (u64::BITS - PLACE_BITS)
}

/// Returns the key of an element or owner record in the order of its table: elements of a sorted
/// set are in the order of their scores, those with equal scores and all others in the order of
/// their keys. `None` for the entry of no element.
#[must_use]
pub fn sort_key<'a>(key: &'a [u8], value: &[u8]) -> Option<Cow<'a, [u8]>> {
    let is_scored =
        CollectionId::of(key).map(CollectionId::kind) == Some(CollectionKind::SortedSet);
    if !is_scored {
        return is_owner(key).map(|_| Cow::Borrowed(key));
    }
    let (id, member) = key.split_at(COLLECTION_ID_BYTES);
    let score = f64::from_le_bytes(value.try_into().ok()?);
    let score = (!score.is_nan()).then_some(Field::Double(score))?.encode();
    Some(Cow::Owned([id, &score, member].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_their_parts() {
        let id = CollectionId::new(CollectionKind::List, 0x1234_5678_9abc_def0, 7).expect("small");
        assert_eq!((id.kind(), id.number()), (CollectionKind::List, 7));
        assert_eq!(CollectionId::of(&id.bytes()), Some(id));
        assert_eq!(position(&id.element(b"x")), 0x1234 << 48);
        assert_eq!(is_owner(&id.owner()), Some(true));
        assert_eq!(is_owner(&id.element(b"")), Some(false));
        assert_eq!(is_owner(&[0; 9]), None);
        let element = id.element(&[0xff; 9]);
        let [first, end] = id.range();
        assert!(id.owner() < first && first[..] <= element[..] && element[..] < end[..]);
        assert!(element[..] < end_of(id.owner())[..]);
        assert_eq!((owner_of(&element), number_of(&id.owner())), (Some(id.owner()), Some(7)));
        let [below, above] = place(0x1234_5678_9abc_def0);
        assert!(below < id.owner() && element[..] < above[..]);
        assert_eq!(CollectionId::new(CollectionKind::Set, 0, RESTORED), None);
        let top = CollectionId::new(CollectionKind::Set, u64::MAX, RESTORED - 1).expect("fits");
        let [_, above] = place(u64::MAX);
        assert!(top.element(&[0xff; 9])[..] < above[..]);
        let restored = CollectionId::restored(CollectionKind::Set, u64::MAX, 7).expect("fits");
        assert!(above[..] <= restored.owner()[..] && restored.kind() == CollectionKind::Set);
    }

    #[test]
    fn members_of_sorted_sets_are_in_the_order_of_their_scores() {
        let id = CollectionId::new(CollectionKind::SortedSet, 0, 0).expect("small");
        let key = |score: f64, member: &[u8]| {
            sort_key(&id.element(member), &score.to_le_bytes()).map(Cow::into_owned)
        };
        assert!(key(-1.0, b"z") < key(-0.0, b"a"));
        assert!(key(-0.0, b"b") < key(0.0, b"c") && key(0.0, b"b") < key(-0.0, b"c"));
        assert!(key(0.5, b"") < key(f64::INFINITY, b""));
        assert_eq!(key(f64::NAN, b""), None);
        assert_eq!(sort_key(&id.element(b"x"), b"short"), None);
        assert_eq!(sort_key(b"short", b""), None);
        assert_eq!(sort_key(&id.owner(), b"key").as_deref(), Some(&id.owner()[..]));
    }
}
