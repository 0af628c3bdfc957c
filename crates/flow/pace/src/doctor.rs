//! Finds system settings that limit a path with a high rate and a long round trip. Reports by how
//! much they limit it, and which values to set instead.

use std::path::Path;
use std::time::Duration;

/// The directory of the system's network settings.
pub const SETTINGS: &str = "/proc/sys/net";

/// The largest window that TCP can advertise (RFC 7323), in bytes.
const LARGEST_WINDOW: u64 = 1 << 30;

/// Ratio of a socket's buffer to its window. With the kernel's default (`tcp_adv_win_scale` = 1),
/// half of the buffer is for the kernel's own structures. Newer kernels measure the size of the
/// structures, and may need less than half.
const WINDOW_SHARE: u64 = 2;

/// Bytes of a page, the unit of `tcp_mem`.
const PAGE_BYTES: u64 = 4096;

/// The path that a connection should fill.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Rate in bits a second.
    pub rate: u64,
    /// Round-trip time.
    pub rtt: Duration,
}

impl Goal {
    /// Returns the number of bytes in flight when the path is full.
    #[must_use]
    pub fn bandwidth_delay_product(&self) -> u64 {
        u64::try_from(u128::from(self.rate) * self.rtt.as_micros() / 8_000_000).unwrap_or(u64::MAX)
    }

    /// Returns the rate, in bits a second, of a connection that keeps `window` bytes in flight.
    fn rate_with(&self, window: u64) -> u64 {
        let micros = self.rtt.as_micros().max(1);
        u64::try_from(u128::from(window) * 8_000_000 / micros).unwrap_or(u64::MAX)
    }
}

/// The end of a path to which a setting matters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PathEnd {
    /// The end that sends.
    Sender,
    /// The end that receives.
    Receiver,
    /// Both ends.
    Both,
}

/// A setting that limits the path.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The setting's name, as `sysctl` writes it.
    pub name: String,
    /// The setting's current value.
    pub current: String,
    /// The recommended value.
    pub recommended: String,
    /// The rate to which the setting limits one connection, in bits a second; `None` if that also
    /// depends on other things.
    pub limit: Option<u64>,
    /// The end to which the setting matters.
    pub end: PathEnd,
    /// The effect of the setting, as a text for the user.
    pub why: String,
    /// Whether the setting affects only programs without CAP_NET_ADMIN. Programs with CAP_NET_ADMIN
    /// can set a value of their own, as Sprat does.
    pub unprivileged_only: bool,
}

/// Reads the settings below `root` ([`SETTINGS`]) and returns those that limit the path. Skips
/// settings that do not exist, for example in an older kernel.
#[must_use]
pub fn examine(root: &Path, goal: &Goal) -> Vec<Finding> {
    let window = goal.bandwidth_delay_product();
    let settings = Settings { root };
    let mut findings = Vec::new();
    for (name, end, what) in [
        ("ipv4.tcp_rmem", PathEnd::Receiver, "the window that a receiver's kernel opens by itself"),
        ("ipv4.tcp_wmem", PathEnd::Sender, "what a sender's kernel keeps until it is acknowledged"),
        ("core.rmem_max", PathEnd::Receiver, "the receive buffer that a program may request"),
        ("core.wmem_max", PathEnd::Sender, "the send buffer that a program may request"),
    ] {
        let Some(text) = settings.text(name) else { continue };
        let Some(most) =
            text.split_whitespace().next_back().and_then(|last| last.parse::<u64>().ok())
        else {
            continue;
        };
        if most / WINDOW_SHARE >= window {
            continue;
        }
        let needed = (window.min(LARGEST_WINDOW) * WINDOW_SHARE)
            .next_power_of_two()
            .min(LARGEST_WINDOW * WINDOW_SHARE - 1);
        let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        *words.last_mut().expect("just read") = needed.to_string();
        findings.push(Finding {
            name: format!("net.{name}"),
            current: text.split_whitespace().collect::<Vec<_>>().join(" "),
            recommended: words.join(" "),
            limit: Some(goal.rate_with(most / WINDOW_SHARE)),
            end,
            why: format!(
                "{what} is at most half of {most} bytes, and {window} are under way on this path"
            ),
            unprivileged_only: true,
        });
    }
    findings.extend(memory(&settings, window));
    for (name, good, end, why) in [
        (
            "ipv4.tcp_window_scaling",
            "1",
            PathEnd::Both,
            "without it no window is larger than 65,535 bytes",
        ),
        ("ipv4.tcp_sack", "1", PathEnd::Both, "without it each loss takes a round trip of its own"),
        (
            "ipv4.tcp_timestamps",
            "1",
            PathEnd::Both,
            "without them round trips are measured seldom, and sequence numbers run out at high \
             rates",
        ),
        (
            "ipv4.tcp_moderate_rcvbuf",
            "1",
            PathEnd::Receiver,
            "without it windows never grow beyond their initial size",
        ),
        (
            "ipv4.tcp_slow_start_after_idle",
            "0",
            PathEnd::Sender,
            "a connection that was idle for a moment falls back to a small window",
        ),
        (
            "ipv4.tcp_no_metrics_save",
            "1",
            PathEnd::Sender,
            "a loss at the end of one transfer makes the next one's start end early",
        ),
    ] {
        let Some(is) = settings.text(name).filter(|is| is.trim() != good) else { continue };
        let limit = (name == "ipv4.tcp_window_scaling").then(|| goal.rate_with(65_535));
        let (current, recommended, why) = (is.trim().to_owned(), good.to_owned(), why.to_owned());
        findings.push(Finding {
            name: format!("net.{name}"),
            current,
            recommended,
            limit,
            end,
            why,
            unprivileged_only: false,
        });
    }
    findings.extend(congestion(&settings));
    findings
}

/// Checks the memory limit of all connections together.
fn memory(settings: &Settings<'_>, window: u64) -> Option<Finding> {
    let name = "ipv4.tcp_mem";
    let text = settings.text(name)?;
    let pages: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [low, pressure, most] = pages[..] else { return None };
    // Bytes in flight and the kernel's structures for them, at both ends.
    let needed = (window.min(LARGEST_WINDOW) * WINDOW_SHARE * 2).div_ceil(PAGE_BYTES);
    if pressure >= needed {
        return None;
    }
    Some(Finding {
        name: format!("net.{name}"),
        current: format!("{low} {pressure} {most}"),
        recommended: format!("{} {needed} {}", low.max(needed / 4 * 3), most.max(needed * 2)),
        limit: None,
        end: PathEnd::Both,
        why: format!(
            "when all connections together have {} MB, the kernel shrinks the windows of all of \
             them",
            pressure / ((1 << 20) / PAGE_BYTES)
        ),
        unprivileged_only: false,
    })
}

/// Checks the default congestion control.
fn congestion(settings: &Settings<'_>) -> Option<Finding> {
    let name = "ipv4.tcp_congestion_control";
    let is = settings.text(name)?.trim().to_owned();
    let available = settings.text("ipv4.tcp_available_congestion_control").unwrap_or_default();
    let has_bbr = available.split_whitespace().any(|each| each == "bbr");
    if is == "bbr" || is.starts_with("sprat") {
        return None;
    }
    Some(Finding {
        name: format!("net.{name}"),
        current: is.clone(),
        recommended: if has_bbr {
            "bbr".to_owned()
        } else {
            format!("{is} (this kernel has no other: modprobe tcp_bbr)")
        },
        limit: None,
        end: PathEnd::Sender,
        why: format!("after a loss, {is} recovers slowly on a long path"),
        unprivileged_only: true,
    })
}

struct Settings<'a> {
    root: &'a Path,
}

impl Settings<'_> {
    fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(name.replace('.', "/"))).ok()
    }
}
