//! Reads the arguments that a device is opened with.

/// Returns the value of `key`, which ends in `=`, in a device's arguments.
pub(super) fn argument<'a>(arguments: &'a str, key: &str) -> Option<&'a str> {
    arguments.split(',').find_map(|argument| argument.strip_prefix(key))
}

/// Returns whether a device connects to a listening peer only once, when it is opened. Such a
/// device must be reopened to connect to another peer.
pub(super) fn dials(arguments: &str) -> bool {
    arguments.starts_with("net_virtio_user")
        && !arguments.contains("server=1")
        && !arguments.contains("/dev/vhost-net")
}
