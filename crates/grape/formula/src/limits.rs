//! How much of something a kernel may have.

/// Bytes of a kernel, at most: as much as the listing of the largest program may have.
pub const MAX_TEXT: usize = 1 << 20;

/// Statements of a kernel, at most.
pub const MAX_STATEMENTS: usize = 8192;

/// Characters of a name, at most.
pub const MAX_NAME: usize = 64;

/// Expressions in expressions, at most.
pub const MAX_NESTING: usize = 64;

/// What `FLOPS` may say, at most.
pub const MAX_FLOPS: u32 = 1_000_000;

/// Values of a program, at most: far beyond what a person writes, and little enough for any back
/// end's tables.
pub const MAX_NODES: usize = 4096;

/// Variables of one kind (i, j, constants, results), at most.
pub const MAX_FIELDS: usize = 64;
