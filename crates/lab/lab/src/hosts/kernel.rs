//! Kernel settings and counters of a host's network namespace.

use super::{Host, HostsError, WINDOW_BYTES};
use std::{fs, io};

/// The TCP counters of the network namespace of the thread that reads the file.
const COUNTERS: &str = "/proc/thread-self/net/netstat";

/// The counter of how often the memory of all TCP connections together reached the second of the
/// three sizes in `net.ipv4.tcp_mem`.
const SHORTAGES: &str = "TCPMemoryPressures";

/// Sets the kernel up in the calling thread's namespace: large windows, no metrics of earlier
/// connections, and addresses that are usable immediately. Then applies the plan's sysctls.
pub(super) fn set(host: &Host) -> Result<(), HostsError> {
    let windows = format!("4096 1048576 {WINDOW_BYTES}");
    let usual = [
        ("ipv4.tcp_rmem", &windows[..]),
        ("ipv4.tcp_wmem", &windows),
        ("ipv4.tcp_no_metrics_save", "1"),
        ("ipv6.conf.default.accept_dad", "0"),
    ];
    let given = host.sysctls.iter().map(|(key, value)| (&key[..], &value[..]));
    for (key, value) in
        usual.into_iter().filter(|(key, _)| !host.sysctls.contains_key(*key)).chain(given)
    {
        let path = format!("/proc/sys/net/{}", key.replace('.', "/"));
        match fs::write(&path, value) {
            // A kernel without IPv6 does not have this setting.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && key == "ipv6.conf.default.accept_dad" => {}
            written => {
                written.map_err(HostsError::refused(format!(
                    "host.{}: set net.{key} to {value:?}",
                    host.name
                )))?;
            }
        }
    }
    Ok(())
}

/// Returns how often connections of the calling thread's namespace found the kernel short of memory
/// for TCP.
///
/// # Errors
/// The counters cannot be read, or this kernel does not have this counter.
pub(super) fn memory_shortages() -> io::Result<u64> {
    counter(&fs::read_to_string(COUNTERS)?, SHORTAGES)
        .ok_or_else(|| io::Error::other(format!("{COUNTERS} has no {SHORTAGES}")))
}

/// Finds a counter in pairs of lines: the first line has names, the second has the numbers in the
/// same order.
fn counter(text: &str, name: &str) -> Option<u64> {
    let lines: Vec<_> = text.lines().collect();
    lines.chunks_exact(2).find_map(|pair| {
        let number = pair[0].split_whitespace().position(|word| word == name)?;
        pair[1].split_whitespace().nth(number)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::counter;

    #[test]
    fn a_counter_is_found_by_its_name_in_the_line_before() {
        let text = "TcpExt: Syncookies TCPMemoryPressures Last\nTcpExt: 1 22 3\nIpExt: \
                    InOctets\nIpExt: 4\n";
        assert_eq!(counter(text, "TCPMemoryPressures"), Some(22));
        assert_eq!(counter(text, "InOctets"), Some(4));
        assert_eq!(counter(text, "OutOctets"), None);
        assert_eq!(counter("TcpExt: TCPMemoryPressures\nTcpExt:\n", "TCPMemoryPressures"), None);
    }

    #[test]
    fn this_kernel_has_the_counter() {
        super::memory_shortages().expect("a number");
    }
}
