//! Formats numbers for people: three significant digits and a unit.

/// Bytes in a MiB.
pub const MIB: f64 = 1_048_576.0;

/// Formats a time in nanoseconds: `13.8 us`.
#[must_use]
pub fn time(ns: f64) -> String {
    scaled(ns, 1000.0, &["ns", "us", "ms", "s"])
}

/// Formats bytes per second in binary multiples: `6.91 MiB/s`, which the paper \[MMS\] calls MB/s.
#[must_use]
pub fn bandwidth(bytes_per_second: f64) -> String {
    scaled(bytes_per_second, 1024.0, &["B/s", "KiB/s", "MiB/s", "GiB/s"])
}

/// Formats operations per second: `142 k/s`.
#[must_use]
pub fn rate(ops_per_second: f64) -> String {
    scaled(ops_per_second, 1000.0, &["/s", "k/s", "M/s", "G/s"])
}

/// Formats bits per second: `1.88 Gb/s`.
#[must_use]
pub fn bit_rate(bits_per_second: f64) -> String {
    scaled(bits_per_second, 1000.0, &["b/s", "kb/s", "Mb/s", "Gb/s"])
}

/// Formats bytes in decimal multiples, as buffers are configured: `64.0 MB`.
#[must_use]
pub fn decimal_bytes(count: f64) -> String {
    scaled(count, 1000.0, &["B", "KB", "MB", "GB"])
}

/// Formats bytes in binary multiples: `1.50 GiB`.
#[must_use]
pub fn bytes(count: f64) -> String {
    scaled(count, 1024.0, &["B", "KiB", "MiB", "GiB"])
}

/// Formats the size of a file in decimal multiples: `999 B`, `1.00 kB`, `123 GB`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn file_size(bytes: u64) -> String {
    match bytes {
        ..1_000 => format!("{bytes} B"),
        _ => scaled(bytes as f64, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB", "EB"]),
    }
}

/// Formats the size of an object in decimal multiples, as the paper \[MMS\] does: `100 B`, `10 KB`,
/// `1 MB`.
#[must_use]
pub fn object_size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1_000_000 && bytes.is_multiple_of(1_000_000) => {
            format!("{} MB", bytes / 1_000_000)
        }
        _ if bytes >= 1_000 && bytes.is_multiple_of(1_000) => format!("{} KB", bytes / 1_000),
        _ => format!("{bytes} B"),
    }
}

/// Formats a time in nanoseconds for an axis: `10 us`, `13.8 us`.
#[must_use]
pub fn short_time(ns: f64) -> String {
    short(&time(ns))
}

/// Removes trailing zeros from a formatted number, for axes: `10.0 us` becomes `10 us`.
#[must_use]
pub fn short(figure: &str) -> String {
    let (number, unit) = figure
        .split_once(' ')
        .map_or((figure, ""), |(number, _)| (number, &figure[number.len()..]));
    let number = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    };
    format!("{number}{unit}")
}

/// Formats a number with three significant digits: `0.152`, `13.8`, `421`. Values below 0.001 look
/// like `5.0e-6`, values of 1000 and more like `1234`. An infinity or NaN becomes `-`.
#[must_use]
pub fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { "-".to_owned() };
    }
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        size if size >= 0.001 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut names = units.iter();
    let mut name = names.next().unwrap_or(&"");
    // Without the limit of 999.5, a value just below 1000 would print as 1000 of the smaller unit.
    while value.abs() >= step.min(999.5) {
        let Some(next) = names.next() else { break };
        value /= step;
        name = next;
    }
    format!("{} {name}", digits(value))
}
