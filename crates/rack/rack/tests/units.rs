//! Checks units with systemd.

use sprat_rack::unit;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

#[test]
fn systemd_finds_nothing_wrong_with_units() {
    let folder = tempfile::tempdir().expect("a folder");
    for kind in ["cassandra", "etcd", "store"] {
        let homes = folder.path().join(kind);
        let program = homes.join("c0-n1-i1/instance");
        fs::create_dir_all(homes.join("c0-n1-i1")).expect("a home");
        fs::write(&program, "#!/bin/sh\n").expect("a program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it may run");
        let text = unit::text(kind, &homes);
        for line in [
            "Restart=on-failure",
            "LimitNOFILE=100000",
            "LimitMEMLOCK=infinity",
            "WantedBy=multi-user.target",
            &format!("ExecStart={}/%i/instance run", homes.display()),
        ] {
            assert!(text.lines().any(|found| found == line), "no {line:?} in\n{text}");
        }
        // The unit gets an instance's name, since systemd cannot resolve the program of a template.
        let path = folder.path().join(unit::name(kind).replace('@', "@c0-n1-i1"));
        fs::write(&path, text).expect("a unit");
        let read = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output();
        let Ok(read) = read else {
            sprat_testing::skip("reading units: there is no systemd-analyze here");
            return;
        };
        let output = String::from_utf8_lossy(&read.stderr).into_owned();
        let ours: Vec<&str> = output.lines().filter(|line| line.contains("sprat-")).collect();
        assert!(read.status.success() && ours.is_empty(), "{output}");
    }
}
