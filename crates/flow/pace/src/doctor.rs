//! What of a system's settings holds a long fat path back, by how much, and what to set instead.

use std::path::Path;
use std::time::Duration;

/// Where the system's settings are.
pub const SETTINGS: &str = "/proc/sys/net";

/// The largest window that TCP can tell the other end (RFC 7323), bytes.
const LARGEST_WINDOW: u64 = 1 << 30;

/// Of a socket's buffer the share that is window: the rest is what the kernel's own structures
/// take. Kernels assume so when they know nothing better (`tcp_adv_win_scale` = 1).
const WINDOW_SHARE: u64 = 2;

/// Bytes of a page, in which the memory of all connections is counted.
const PAGE_BYTES: u64 = 4096;

/// A path to be filled.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Bits a second.
    pub rate: u64,
    /// Round-trip time.
    pub rtt: Duration,
}

impl Goal {
    /// Bytes under way when it is full (the bandwidth-delay product).
    #[must_use]
    pub fn under_way(&self) -> u64 {
        u64::try_from(u128::from(self.rate) * self.rtt.as_micros() / 8_000_000).unwrap_or(u64::MAX)
    }

    /// Bits a second with so many bytes under way at most.
    fn rate_with(&self, window: u64) -> u64 {
        let micros = self.rtt.as_micros().max(1);
        u64::try_from(u128::from(window) * 8_000_000 / micros).unwrap_or(u64::MAX)
    }
}

/// Whom a setting is of importance to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// The end that sends.
    Sender,
    /// The end that receives.
    Receiver,
    /// Both.
    Both,
}

/// Something that holds the path back.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The setting, as `sysctl` names it; or what else it is.
    pub name: String,
    /// What it is.
    pub is: String,
    /// What it should be.
    pub should: String,
    /// Bits a second that one connection can have with it; none where that depends on more.
    pub limit: Option<u64>,
    /// At which end.
    pub end: End,
    /// What it does.
    pub why: String,
    /// Whether programs that may set their own limits, as ours with CAP_NET_ADMIN, are free of it.
    pub only_others: bool,
}

/// Reads the settings below `root` ([`SETTINGS`]), and tells what holds the path back. What cannot
/// be read is left out: an older kernel has it not.
#[must_use]
pub fn examine(root: &Path, goal: &Goal) -> Vec<Finding> {
    let window = goal.under_way();
    let settings = Settings { root };
    let mut findings = Vec::new();
    for (name, end, what) in [
        ("ipv4.tcp_rmem", End::Receiver, "the window that a receiver's kernel opens by itself"),
        ("ipv4.tcp_wmem", End::Sender, "what a sender's kernel keeps until it is acknowledged"),
        ("core.rmem_max", End::Receiver, "the receive buffer that a program may ask for"),
        ("core.wmem_max", End::Sender, "the send buffer that a program may ask for"),
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
            is: text.split_whitespace().collect::<Vec<_>>().join(" "),
            should: words.join(" "),
            limit: Some(goal.rate_with(most / WINDOW_SHARE)),
            end,
            why: format!(
                "{what} is at most half of {most} bytes, and {window} are under way on this path"
            ),
            only_others: true,
        });
    }
    findings.extend(memory(&settings, window));
    for (name, good, end, why) in [
        (
            "ipv4.tcp_window_scaling",
            "1",
            End::Both,
            "without it no window is larger than 65,535 bytes",
        ),
        ("ipv4.tcp_sack", "1", End::Both, "without it each loss takes a round trip of its own"),
        (
            "ipv4.tcp_timestamps",
            "1",
            End::Both,
            "without them round trips are measured seldom, and sequence numbers run out at high rates",
        ),
        (
            "ipv4.tcp_moderate_rcvbuf",
            "1",
            End::Receiver,
            "without it windows stay as small as they begin",
        ),
        (
            "ipv4.tcp_slow_start_after_idle",
            "0",
            End::Sender,
            "a connection that has paused for a moment begins again from nothing",
        ),
        (
            "ipv4.tcp_no_metrics_save",
            "1",
            End::Sender,
            "a loss at the end of one transfer makes the next one's start end early",
        ),
    ] {
        let Some(is) = settings.text(name).filter(|is| is.trim() != good) else { continue };
        let limit = (name == "ipv4.tcp_window_scaling").then(|| goal.rate_with(65_535));
        let (is, should, why) = (is.trim().to_owned(), good.to_owned(), why.to_owned());
        findings.push(Finding {
            name: format!("net.{name}"),
            is,
            should,
            limit,
            end,
            why,
            only_others: false,
        });
    }
    findings.extend(congestion(&settings));
    findings
}

/// The memory of all connections together.
fn memory(settings: &Settings<'_>, window: u64) -> Option<Finding> {
    let name = "ipv4.tcp_mem";
    let text = settings.text(name)?;
    let pages: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [low, pressure, most] = pages[..] else { return None };
    // What is under way, with its structures, at either end.
    let needed = (window.min(LARGEST_WINDOW) * WINDOW_SHARE * 2).div_ceil(PAGE_BYTES);
    if pressure >= needed {
        return None;
    }
    Some(Finding {
        name: format!("net.{name}"),
        is: format!("{low} {pressure} {most}"),
        should: format!("{} {needed} {}", low.max(needed / 4 * 3), most.max(needed * 2)),
        limit: None,
        end: End::Both,
        why: format!(
            "when all connections together have {} MB, the kernel shrinks everybody's windows",
            pressure / ((1 << 20) / PAGE_BYTES)
        ),
        only_others: false,
    })
}

/// The congestion control of those who do not choose one.
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
        is: is.clone(),
        should: if has_bbr {
            "bbr".to_owned()
        } else {
            format!("{is} (this kernel has no other: modprobe tcp_bbr)")
        },
        limit: None,
        end: End::Sender,
        why: format!("after a loss, {is} takes long to be back on a long path"),
        only_others: true,
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
