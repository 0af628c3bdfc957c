//! Limits of a kernel.

/// Limit on the length of a kernel's text, in bytes: enough for the listing of the largest program.
/// A longer text is a syntax error.
pub const MAX_TEXT: usize = 1 << 20;

/// Limit on the statements of a kernel that end with a line break or a semicolon; declarations
/// count. More are a syntax error.
pub const MAX_STATEMENTS: usize = 8192;

/// Limit on the characters of a name. A longer name is a syntax error.
pub const MAX_NAME: usize = 64;

/// Limit on the nesting of expressions. A deeper nesting is a syntax error.
pub const MAX_NESTING: usize = 64;

/// Limit on the count of operations that `FLOPS` may state. A larger one is a syntax error.
pub const MAX_FLOPS: u32 = 1_000_000;

/// Limit on the values of a program: far more than people write, but few enough for any back end's
/// tables. More are a syntax error.
pub const MAX_NODES: usize = 4096;

/// Limit on the variables of each kind (i, j, constants, results). More are a syntax error.
pub const MAX_FIELDS: usize = 64;
