//! Settings that limit a path.

use sprat_pace::doctor::{Goal, PathEnd, SETTINGS, examine};
use std::path::Path;
use std::time::Duration;

/// Writes a system's settings as files.
fn system(settings: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, value) in settings {
        let path = root.path().join(name.replace('.', "/"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{value}\n")).unwrap();
    }
    root
}

const LONG: Goal = Goal { rate: 10_000_000_000, rtt: Duration::from_millis(200) };

#[test]
fn buffers_of_a_plain_system_hold_a_long_path_back() {
    let root = system(&[
        ("ipv4.tcp_rmem", "4096\t131072\t6291456"),
        ("ipv4.tcp_wmem", "4096\t16384\t4194304"),
        ("core.rmem_max", "212992"),
        ("ipv4.tcp_sack", "1"),
    ]);
    let findings = examine(root.path(), &LONG);
    let names: Vec<_> = findings.iter().map(|finding| &finding.name[..]).collect();
    assert_eq!(names, ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.core.rmem_max"]);
    assert_eq!(
        findings[0].recommended, "4096 131072 536870912",
        "twice 250 MB, and a power of \
        two"
    );
    assert_eq!(findings[0].limit, Some(6_291_456 / 2 * 8 * 5), "half of it each fifth of a second");
    assert_eq!(findings[1].end, PathEnd::Sender);
}

#[test]
fn a_system_that_is_set_for_it_has_nothing_to_mend() {
    let root = system(&[
        ("ipv4.tcp_rmem", "4096 131072 1073741824"),
        ("ipv4.tcp_wmem", "4096 16384 1073741824"),
        ("core.rmem_max", "1073741824"),
        ("core.wmem_max", "1073741824"),
        ("ipv4.tcp_mem", "1000000 2000000 4000000"),
        ("ipv4.tcp_window_scaling", "1"),
        ("ipv4.tcp_sack", "1"),
        ("ipv4.tcp_slow_start_after_idle", "0"),
        ("ipv4.tcp_congestion_control", "bbr"),
    ]);
    assert_eq!(examine(root.path(), &LONG), []);
}

#[test]
fn recommended_settings_are_enough() {
    for rate in [1_000_000, 1_000_000_000, 10_000_000_000, 40_000_000_000] {
        let goal = Goal { rate, ..LONG };
        let mut settings = vec![
            ("ipv4.tcp_rmem".to_owned(), "4096 4096 4096".to_owned()),
            ("ipv4.tcp_wmem".to_owned(), "4096 4096 4096".to_owned()),
            ("core.wmem_max".to_owned(), "4096".to_owned()),
            ("ipv4.tcp_mem".to_owned(), "1 2 3".to_owned()),
            ("ipv4.tcp_window_scaling".to_owned(), "0".to_owned()),
        ];
        for _ in 0..2 {
            let given: Vec<_> =
                settings.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            let root = system(&given);
            let findings = examine(root.path(), &goal);
            settings = findings
                .iter()
                .map(|each| (each.name["net.".len()..].to_owned(), each.recommended.clone()))
                .collect();
        }
        // Windows have a limit of a gigabyte. If a path needs more, no setting lets one connection
        // fill it, and the findings are reported again.
        let most = goal.bandwidth_delay_product() <= 1 << 30;
        assert_eq!(settings.is_empty(), most, "{rate}: {settings:?}");
    }
}

#[test]
fn settings_of_any_form_are_read() {
    let root = system(&[
        ("ipv4.tcp_rmem", ""),
        ("ipv4.tcp_wmem", "a b c"),
        ("ipv4.tcp_mem", "1 2"),
        ("core.rmem_max", "-1"),
    ]);
    assert_eq!(examine(root.path(), &LONG), []);
    assert_eq!(examine(Path::new("/no such place"), &LONG), []);
    let _ =
        examine(Path::new(SETTINGS), &Goal { rate: u64::MAX, rtt: Duration::from_secs(1 << 40) });
    let _ = examine(Path::new(SETTINGS), &Goal { rate: 0, rtt: Duration::ZERO });
}
