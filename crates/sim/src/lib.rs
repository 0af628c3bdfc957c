//! The deterministic simulator: virtual time, a hostile network, a disk that tears, and the check of what was acknowledged.
