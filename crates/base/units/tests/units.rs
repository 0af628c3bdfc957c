//! Tests texts that people type. Each must have the meaning that it has in the tool it comes from.

use proptest::prelude::*;
use sprat_units::figure;
use sprat_units::{duration, percent, rate, seconds, share, size};
use std::time::Duration;

#[test]
fn sizes() {
    for (text, bytes) in [
        ("0", 0),
        ("1500", 1500),
        ("1500B", 1500),
        ("64k", 64 << 10),
        ("64K", 64 << 10),
        ("1G", 1 << 30),
        ("1Gi", 1 << 30),
        ("1GiB", 1 << 30),
        ("1GB", 1_000_000_000),
        ("1gb", 1_000_000_000),
        ("1.5GB", 1_500_000_000),
        ("1.5G", 3 << 29),
        ("1.5 GiB", 3 << 29),
        ("64 MB", 64_000_000),
        ("2T", 2 << 40),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
    for text in [
        "",
        "G",
        "many",
        "-1",
        "1e3",
        "1.2.3M",
        "1Gbit",
        "1GB/s",
        "99999999999T",
        "18446744073709551616",
        "1 2M",
    ] {
        assert!(size(text).is_err(), "{text}");
    }
}

#[test]
fn rates() {
    for (text, bits) in [
        ("9600", 9600),
        ("9600b/s", 9600),
        ("9.6kbit/s", 9600),
        ("100M", 100_000_000),
        ("100m", 100_000_000),
        ("100mbit", 100_000_000),
        ("100Mbit", 100_000_000),
        ("100Mbps", 100_000_000),
        ("2Gb/s", 2_000_000_000),
        ("2Gbit", 2_000_000_000),
        ("2G", 2_000_000_000),
        ("2.5 Gb/s", 2_500_000_000),
        ("10MB/s", 80_000_000),
        ("10MBps", 80_000_000),
        ("1MiB/s", 8 << 20),
        ("1mibit", 1 << 20),
    ] {
        assert_eq!(rate(text), Ok(bits), "{text}");
    }
    for text in ["", "fast", "2GHz", "-1M", "99999999P", "b/s", "1ib/s"] {
        assert!(rate(text).is_err(), "{text}");
    }
    for (text, readings) in [
        ("100mbps", "100Mb/s or 100MB/s"),
        ("2GB", "2Gb/s or 2GB/s"),
        ("64kbps", "64kb/s or 64kB/s"),
    ] {
        let error = rate(text).expect_err(text).to_string();
        assert!(error.contains(readings), "{error}");
    }
}

#[test]
fn times() {
    for (text, nanos) in [
        ("0", 0),
        ("400ns", 400),
        ("20us", 20_000),
        ("20\u{b5}s", 20_000),
        ("250ms", 250_000_000),
        ("250 ms", 250_000_000),
        ("100msec", 100_000_000),
        ("1.5s", 1_500_000_000),
        ("10m", 600_000_000_000),
        ("1h", 3_600_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1d 12h", 129_600_000_000_000),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        assert_eq!(seconds(text), duration(text), "{text}");
    }
    assert_eq!(seconds("60"), Ok(Duration::from_secs(60)));
    for text in [
        "",
        "ms",
        "-1ms",
        "1e3ms",
        "1.2.3s",
        "5 parsecs",
        "1h30",
        "1h 30",
        "60 30s",
        "0 5s",
        "600y",
        "9999999d",
        "1h-1m",
    ] {
        assert!(duration(text).is_err(), "{text}");
        assert!(seconds(text).is_err(), "{text}");
    }
    assert!(duration("100").expect_err("no unit").to_string().contains("100s or 100ms"));
}

#[test]
fn shares() {
    for (text, value) in [("0", 0.0), ("0%", 0.0), ("0.1%", 0.001), ("50 %", 0.5), ("100%", 1.0)] {
        assert_eq!(share(text), Ok(value), "{text}");
    }
    for value in [0.0, 1.0, 0.1, 0.07, 0.29, 1e-9, 0.123_456_789, f64::MIN_POSITIVE] {
        assert_eq!(share(&percent(value)), Ok(value), "{}", percent(value));
    }
    assert_eq!([0.0, 1.0, 0.5, 0.001, 0.255].map(percent), ["0%", "100%", "50%", "0.1%", "25.5%"]);
    for text in ["", "%", "101%", "nan", "1.01", "5", "-1%"] {
        assert!(share(text).is_err(), "{text}");
    }
    for (text, readings) in [("0.1", "0.1% or 10%"), ("1", "1% or 100%"), ("0.07", "0.07% or 7%")] {
        let error = share(text).expect_err(text).to_string();
        assert!(error.contains(readings), "{error}");
    }
}

#[test]
fn figures_have_three_digits() {
    let times = [
        (0.0, "0 ns"),
        (13.8e3, "13.8 us"),
        (999.4, "999 ns"),
        (999.7, "1.00 us"),
        (4.7e6, "4.70 ms"),
        (7.2e10, "72.0 s"),
    ];
    for (ns, text) in times {
        assert_eq!(figure::time(ns), text);
    }
    for (long, short) in [
        ("10.0 us", "10 us"),
        ("0.200 s", "0.2 s"),
        ("100 us", "100 us"),
        ("0 %", "0 %"),
        ("0", "0"),
    ] {
        assert_eq!(figure::short(long), short);
    }
    assert_eq!(figure::rate(142_000.0), "142 k/s");
    assert_eq!(figure::bandwidth(6.9 * figure::MIB), "6.90 MiB/s");
    assert_eq!(figure::object_size(1_000_000), "1 MB");
    assert_eq!(figure::object_size(1_234), "1234 B");
    assert_eq!(figure::short_time(10_000.0), "10 us");
    let files = [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (999_949, "1.00 MB"),
        (12_345_678, "12.3 MB"),
        (123_456_789_000, "123 GB"),
        (u64::MAX, "18.4 EB"),
    ];
    for (bytes, text) in files {
        assert_eq!(figure::file_size(bytes), text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = (size(&text), rate(&text), duration(&text), seconds(&text), share(&text));
    }

    #[test]
    fn no_near_quantity_panics(
        text in "[0-9.]{0,22} ?(([kKmMgGtTpP]i?)?(b|B|bit|b/s|Bps|%|s|ms|h|\u{b5}s)?){0,3}",
    ) {
        let _ = (size(&text), rate(&text), duration(&text), seconds(&text), share(&text));
    }

    #[test]
    fn shares_round_trip_exactly(value in 0.0..=1.0) {
        prop_assert_eq!(share(&percent(value)), Ok(value));
    }

    #[test]
    fn whole_numbers_are_exact(number in 0..u64::MAX >> 10) {
        prop_assert_eq!(size(&format!("{number}K")), Ok(number << 10));
        prop_assert_eq!(duration(&format!("{number}ns")), Ok(Duration::from_nanos(number)));
    }
}
