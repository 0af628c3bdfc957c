//! The rules of the house, as checks over the sources.
