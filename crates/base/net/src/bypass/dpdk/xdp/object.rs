//! Writes a program as an object file, the form in which DPDK's `af_xdp` takes it: an ELF
//! relocatable with the program, the map that it refers to, and the type information (BTF) that
//! describes the map to libbpf.

use object::write::{Object, Relocation, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope,
};

use super::program::Program;

/// The map's name, by which DPDK finds the map.
const MAP: &str = "xsks_map";

/// The program's name, by which we recognise it.
pub(super) const NAME: &str = "sprat_share";

/// The type of a map that holds an AF_XDP socket for each queue.
const XSKMAP: u32 = 17;
/// Length of each of the map's keys and values, in bytes.
const INT_BYTES: u32 = 4;
/// Number of queues for which the map has room.
const QUEUES: u32 = 64;

/// Bytes of the map's description: four members, each as large as a pointer.
const DESCRIPTION: u32 = 32;

/// Composes the object file.
pub(super) fn file(program: &Program) -> Result<Vec<u8>, object::write::Error> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let mut add = |name: &str, kind, bytes: &[u8]| {
        let section = object.add_section(Vec::new(), name.into(), kind);
        object.append_section_data(section, bytes, 8);
        section
    };
    let text = add("xdp", SectionKind::Text, &program.code);
    let maps = add(".maps", SectionKind::Data, &[0; DESCRIPTION as usize]);
    add("license", SectionKind::Data, b"Apache-2.0\0");
    add(".BTF", SectionKind::Other, &types());
    let mut symbol = |name: &str, size, kind, section| {
        object.add_symbol(Symbol {
            name: name.into(),
            value: 0,
            size,
            kind,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        })
    };
    symbol(NAME, program.code.len() as u64, SymbolKind::Text, text);
    let map = symbol(MAP, DESCRIPTION.into(), SymbolKind::Data, maps);
    let flags = RelocationFlags::Elf { r_type: object::elf::R_BPF_64_64 };
    object
        .add_relocation(text, Relocation { offset: program.map, symbol: map, addend: 0, flags })?;
    object.write()
}

/// Returns the types: `struct { int (*type)[17]; int (*key_size)[4]; int (*value_size)[4]; int
/// (*max_entries)[64]; } xsks_map` in the section `.maps`. BTF expresses numbers as lengths of
/// arrays.
fn types() -> Vec<u8> {
    let mut strings = vec![0];
    let mut name = |text: &str| {
        let at = u32::try_from(strings.len()).expect("a few names");
        strings.extend_from_slice(text.as_bytes());
        strings.push(0);
        at
    };
    /// The kinds of types, as encoded in a type's info word.
    const INT: u32 = 1 << 24;
    const POINTER: u32 = 2 << 24;
    const ARRAY: u32 = 3 << 24;
    const STRUCT: u32 = 4 << 24;
    const VARIABLE: u32 = 14 << 24;
    const SECTION: u32 = 15 << 24;
    const SIGNED_32: u32 = 1 << 24 | 32;
    const GLOBAL: u32 = 1;
    let mut words = vec![name("int"), INT, INT_BYTES, SIGNED_32]; // type 1
    for (array, number) in [(2, XSKMAP), (4, INT_BYTES), (6, QUEUES)] {
        words.extend([0, ARRAY, 0, 1, 1, number]); // types 2, 4 and 6
        words.extend([0, POINTER, array]); // types 3, 5 and 7: pointers to the arrays
    }
    let members = [("type", 3), ("key_size", 5), ("value_size", 5), ("max_entries", 7)];
    words.extend([0, STRUCT | 4, DESCRIPTION]); // type 8
    for ((member, kind), bit) in members.into_iter().zip((0..).step_by(64)) {
        words.extend([name(member), kind, bit]);
    }
    words.extend([name(MAP), VARIABLE, 8, GLOBAL]); // type 9
    words.extend([name(".maps"), SECTION | 1, DESCRIPTION, 9, 0, DESCRIPTION]); // type 10
    let (types, names) = (words.len() * 4, strings.len());
    let header = [24, 0, types, types, names].map(|word| u32::try_from(word).expect("short"));
    let magic = [0x9f, 0xeb, 1, 0]; // then version and flags
    let words = header.iter().chain(&words).flat_map(|word| word.to_le_bytes());
    magic.into_iter().chain(words).chain(strings).collect()
}
