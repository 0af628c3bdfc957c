//! Parses the kernel's type information, to find the offsets of structure members (BTF,
//! `Documentation/bpf/btf.rst`).

use std::collections::HashMap;

/// Limit on the levels of anonymous structures that are searched.
const MAX_DEPTH: usize = 8;

/// The types in a kernel's type information.
pub struct Types<'a> {
    strings: &'a [u8],
    /// The types, in the order of their numbers, which start at one.
    types: Vec<Type<'a>>,
    /// The numbers of structures, by name.
    structures: HashMap<&'a [u8], u32>,
}

struct Type<'a> {
    info: u32,
    /// For a structure, its size in bytes. For most other kinds, the number of the type to which it
    /// refers.
    size_or_type: u32,
    rest: &'a [u8],
}

impl Type<'_> {
    fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }

    fn is_structure(&self) -> bool {
        matches!(self.kind(), kind::STRUCT | kind::UNION)
    }
}

mod kind {
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
}

/// A member of a structure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Member {
    /// The member's offset from the beginning of the structure, in bytes.
    pub offset: u32,
    /// The member's index in its structure, or in the anonymous structure that contains it.
    pub index: u32,
    /// The number of the member's type.
    pub kind: u32,
}

const HEADER_BYTES: usize = 24;
const MAGIC: u32 = 0xEB9F;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Returns the number of bytes behind the header of a type, by its kind and number of members.
/// `None` for an unknown kind.
fn rest_of(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4,
        2 | 7..=12 | 16 | 18 => 0,
        3 => 12,
        kind::STRUCT | kind::UNION | 15 | 19 => 12 * members,
        6 | 13 => 8 * members,
        _ => return None,
    })
}

impl<'a> Types<'a> {
    /// Parses type information. `None` if it is malformed, or has a kind of type that is unknown.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if word(bytes, 0)? & 0xffff != MAGIC {
            return None;
        }
        let begin = word(bytes, 4)? as usize;
        if begin < HEADER_BYTES {
            return None;
        }
        let part = |at: usize| {
            let start = begin.checked_add(word(bytes, at)? as usize)?;
            bytes.get(start..start.checked_add(word(bytes, at + 4)? as usize)?)
        };
        let (mut left, strings) = (part(8)?, part(16)?);
        let mut all = Self { strings, types: Vec::new(), structures: HashMap::new() };
        while !left.is_empty() {
            let (name, info, size_or_type) = (word(left, 0)?, word(left, 4)?, word(left, 8)?);
            let members = (info & 0xffff) as usize;
            let rest = rest_of(info >> 24 & 0x1f, members)?;
            let each = Type { info, size_or_type, rest: left.get(12..12 + rest)? };
            left = &left[12 + rest..];
            let is_structure = each.is_structure();
            all.types.push(each);
            if is_structure && name != 0 {
                let number = u32::try_from(all.types.len()).ok()?;
                all.structures.entry(all.string(name)?).or_insert(number);
            }
        }
        Some(all)
    }

    fn string(&self, at: u32) -> Option<&'a [u8]> {
        self.strings.get(at as usize..)?.split(|byte| *byte == 0).next()
    }

    fn get(&self, number: u32) -> Option<&Type<'a>> {
        self.types.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    /// Returns the number of the structure or union with this name.
    #[must_use]
    pub fn structure(&self, name: &str) -> Option<u32> {
        self.structures.get(name.as_bytes()).copied()
    }

    /// Returns the size of a structure in bytes.
    #[must_use]
    pub fn bytes(&self, structure: u32) -> Option<u32> {
        self.get(structure).filter(|each| each.is_structure()).map(|each| each.size_or_type)
    }

    /// Returns a member of a structure. Also finds members in anonymous structures inside it.
    #[must_use]
    pub fn member(&self, structure: u32, name: &str) -> Option<Member> {
        self.member_within(structure, name.as_bytes(), MAX_DEPTH)
    }

    fn member_within(&self, structure: u32, name: &[u8], depth: usize) -> Option<Member> {
        let each = self.get(structure).filter(|each| each.is_structure())?;
        let bit_fields = each.info >> 31 == 1;
        for (index, member) in each.rest.chunks_exact(12).enumerate() {
            let (its_name, kind, offset) = (word(member, 0)?, word(member, 4)?, word(member, 8)?);
            let offset = if bit_fields { offset & 0x00ff_ffff } else { offset } / 8;
            if its_name == 0 {
                let inner =
                    depth.checked_sub(1).and_then(|depth| self.member_within(kind, name, depth));
                if let Some(inner) = inner {
                    return Some(Member { offset: offset.checked_add(inner.offset)?, ..inner });
                }
            } else if self.string(its_name)? == name {
                return Some(Member { offset, index: u32::try_from(index).ok()?, kind });
            }
        }
        None
    }

    /// Returns the offset of the last member of `path`, in bytes from the beginning of `structure`.
    /// Each member of `path` contains the next one.
    #[must_use]
    pub fn offset(&self, structure: u32, path: &[&str]) -> Option<u32> {
        let mut at = (structure, 0_u32);
        for name in path {
            let member = self.member(at.0, name)?;
            at = (member.kind, at.1.checked_add(member.offset)?);
        }
        Some(at.1)
    }
}
