//! Looks into the arguments that a device is opened with.

/// What a device's arguments say of `key`, which ends in `=`.
pub(super) fn argument<'a>(arguments: &'a str, key: &str) -> Option<&'a str> {
    arguments.split(',').find_map(|argument| argument.strip_prefix(key))
}

/// Whether a device connects to a peer that listens, once: then it has to be opened anew for
/// another peer.
pub(super) fn dials(arguments: &str) -> bool {
    arguments.starts_with("net_virtio_user")
        && !arguments.contains("server=1")
        && !arguments.contains("/dev/vhost-net")
}
