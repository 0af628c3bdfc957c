//! Named numbers that a node exports to monitoring.

use std::borrow::Cow;

use crate::Counters;

/// A metric: a name and its value. Names that end in `_total` belong to counters, which only grow.
/// Labels follow the name, as in `device_up{device="net_af_packet0"}`. A name with its labels has
/// at most [`MAX_NAME`] bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Figure {
    /// The name, with labels if it has any.
    pub name: Cow<'static, str>,
    /// The value.
    pub value: u64,
}

/// The longest name of a figure with its labels, in bytes, because on the network its length takes
/// one byte.
pub const MAX_NAME: usize = 255;

/// The longest value of a label, in characters; longer values are cut.
const MAX_LABEL: usize = 64;

impl Figure {
    /// Creates a figure without labels.
    #[must_use]
    pub fn new(name: &'static str, value: u64) -> Self {
        Self { name: name.into(), value }
    }

    /// Creates a figure with one to three labels, each a name and a value. In label values, quotes,
    /// backslashes, spaces and all characters that are not printable ASCII are replaced by `_`.
    ///
    /// # Panics
    /// If the name with its labels is longer than [`MAX_NAME`].
    #[must_use]
    pub fn labelled(name: &'static str, labels: &[(&'static str, &str)], value: u64) -> Self {
        let plain =
            |c: char| if c.is_ascii_graphic() && !matches!(c, '"' | '\\') { c } else { '_' };
        let label = |(name, value): &(&str, &str)| {
            let value: String = value.chars().take(MAX_LABEL).map(plain).collect();
            format!("{name}=\"{value}\"")
        };
        let labels: Vec<_> = labels.iter().map(label).collect();
        let name = format!("{name}{{{}}}", labels.join(","));
        assert!(name.len() <= MAX_NAME, "{name} is longer than {MAX_NAME} bytes");
        Self { name: name.into(), value }
    }
}

impl Counters {
    /// Adds each counter as a figure.
    pub fn figures(&self, figures: &mut Vec<Figure>) {
        let named = [
            ("network_frames_in_total", self.frames_in),
            ("network_bytes_in_total", self.bytes_in),
            ("network_frames_out_total", self.frames_out),
            ("network_bytes_out_total", self.bytes_out),
            ("network_dropped_full_total", self.dropped_full),
            ("network_dropped_size_total", self.dropped_size),
            ("network_dropped_unreachable_total", self.dropped_unreachable),
            ("network_dropped_refused_total", self.dropped_refused),
            ("network_dropped_other_total", self.dropped_other),
            ("network_malformed_total", self.malformed),
            ("network_foreign_total", self.foreign),
            ("network_corrupt_total", self.corrupt),
            ("network_no_buffer_total", self.no_buffer),
            ("network_receive_errors_total", self.receive_errors),
            ("network_sends_total", self.sends),
            ("network_segmented_total", self.segmented),
            ("network_connected_total", self.connected),
            ("network_accepted_total", self.accepted),
            ("network_rejected_total", self.rejected),
            ("network_connect_failed_total", self.connect_failed),
            ("network_closed_total", self.closed),
        ];
        figures.extend(named.map(|(name, value)| Figure::new(name, value)));
    }
}

#[cfg(test)]
mod tests {
    use super::Figure;

    #[test]
    fn labels_are_plain_and_short() {
        let figure =
            Figure::labelled("up", &[("device", "a\"b\\c\nd"), ("mac", &"x".repeat(100))], 1);
        assert_eq!(figure.name, format!("up{{device=\"a_b_c_d\",mac=\"{}\"}}", "x".repeat(64)));
    }
}
