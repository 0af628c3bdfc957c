//! Limits of a kernel.

/// The most bytes of a kernel's text: enough for the listing of the largest program.
pub const MAX_TEXT: usize = 1 << 20;

/// The most statements.
pub const MAX_STATEMENTS: usize = 8192;

/// The most characters of a name.
pub const MAX_NAME: usize = 64;

/// The deepest nesting of expressions.
pub const MAX_NESTING: usize = 64;

/// The largest count of `FLOPS`.
pub const MAX_FLOPS: u32 = 1_000_000;

/// The most values of a program: far more than people write, but few enough for any back end's
/// tables.
pub const MAX_NODES: usize = 4096;

/// The most variables of one kind (i, j, constants, results).
pub const MAX_FIELDS: usize = 64;
