//! Log-structured memory: segments in an arena, a hash table that grows online, a two-level cleaner.
