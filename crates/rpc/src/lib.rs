//! Remote procedure calls without I/O: sessions, fragments, grants, retransmission, at most once.
