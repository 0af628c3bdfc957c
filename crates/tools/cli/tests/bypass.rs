//! Tests the real binary with kernel bypass. Server and clients are processes, connected by DPDK's
//! shared-memory devices or by a veth pair between two network namespaces.
#![cfg(feature = "dpdk")]

use crate::support;
use sprat_chance::Chance;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::{ServerProcess, alone, ip, run, skip, sprat};

const SMALL: [&str; 4] = ["--memory", "256M", "--disk", "1G"];

/// Returns the locators of both ends of a shared-memory interface.
fn memif(folder: &Path) -> [String; 2] {
    let socket = folder.join("memif.sock");
    [("10.9.0.1,port=7", "server"), ("10.9.0.2,port=0", "client")].map(|(host, role)| {
        let socket = socket.display();
        format!("fast+dpdk:host={host},dev=net_memif0,role={role},id=0,socket={socket},socket-abstract=no")
    })
}

/// Writes `count` files of many sizes.
fn plant(tree: &Path, count: usize) {
    let mut random = Chance::new(42);
    for number in 0..count {
        let len = match number % 20 {
            0 => 1 << 20,
            1 => 100_000,
            2 => 0,
            _ => random.index(4000),
        };
        let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + number).to_le_bytes()[0]).collect();
        let folder = tree.join(format!("d{}", number % 7));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(format!("f{number}")), bytes).expect("a file");
    }
}

#[track_caller]
fn same(a: &Path, b: &Path) {
    let diff = Command::new("diff")
        .arg("-r")
        .args([a, b])
        .stdout(Stdio::piped())
        .output()
        .expect("diff runs");
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
}

/// Makes tables, writes, reads and increments objects, and imports and exports files, over a
/// transport. `local` is the client's end of it.
fn use_the_store(folder: &Path, coordinator: &str, local: &str, within: &dyn Fn(&mut Command)) {
    let sprat = |args: &[&str]| {
        let mut command = sprat();
        command.args(args).args(["-C", coordinator, "--local", local]);
        within(&mut command);
        let output = command.output().expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {}: {said}", output.status);
        String::from_utf8(output.stdout).expect("text")
    };
    sprat(&["table", "create", "t"]);
    sprat(&["put", "t", "alice", "likes tea"]);
    assert_eq!(sprat(&["get", "t", "alice"]).trim_end(), "likes tea");
    assert_eq!(sprat(&["incr", "t", "visits"]).trim_end(), "1");
    let (tree, back) = (folder.join("tree"), folder.join("back"));
    plant(&tree, 200);
    sprat(&["table", "create", "files"]);
    sprat(&["import", "-q", "files", tree.to_str().expect("plain")]);
    sprat(&["export", "-q", "files", back.to_str().expect("plain")]);
    same(&tree, &back);
}

#[test]
fn the_store_over_a_memory_interface_survives_the_end_of_either() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let [listen, local] = memif(folder.path());
    let data = folder.path().join("data");
    let flags = [&["-L", &listen][..], &SMALL].concat();
    let mut server = ServerProcess::start(&data, &flags).unwrap_or_else(|error| panic!("{error}"));
    assert!(server.listen.starts_with("fast+dpdk:host=10.9.0.1,mac="), "{}", server.listen);
    assert!(
        !server.listen.contains("dev="),
        "other machines need not know of our devices: {}",
        server.listen
    );
    use_the_store(folder.path(), &server.coordinator, &local, &|_| {});

    // A client that ends in the middle of a burst does not affect the others.
    for round in 0..3 {
        let mut busy = sprat()
            .args([
                "bench",
                "basic",
                "-C",
                &server.coordinator,
                "--local",
                &local,
                "--sizes",
                "10000",
                "--depth",
                "32",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        #[allow(
            clippy::disallowed_methods,
            reason = "the bench is to be ended somewhere in its work"
        )]
        std::thread::sleep(Duration::from_millis(900 + 100 * round));
        busy.kill().expect("it runs");
        busy.wait().expect("ours");
        let found = run(&["get", "t", "alice", "-C", &server.coordinator, "--local", &local]);
        assert_eq!(found.ok().trim_end(), "likes tea");
        assert!(server.runs());
    }

    // A server that was killed has all objects after its restart.
    server.kill();
    let mut server = ServerProcess::start(&data, &flags).unwrap_or_else(|error| panic!("{error}"));
    let found = run(&["get", "t", "alice", "-C", &server.coordinator, "--local", &local]);
    assert_eq!(found.ok().trim_end(), "likes tea");
    assert!(server.runs());
    assert!(server.stop().success());
}

#[test]
fn the_store_over_a_paravirtual_device() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("vhost.sock").display().to_string();
    let listen = format!("fast+dpdk:host=10.9.0.1,port=7,dev=net_vhost0,iface={socket}");
    let local = format!("fast+dpdk:host=10.9.0.2,port=0,dev=net_virtio_user0,path={socket}");
    let flags = [&["-L", &listen][..], &SMALL].concat();
    let server = ServerProcess::start(&folder.path().join("data"), &flags)
        .unwrap_or_else(|error| panic!("{error}"));
    use_the_store(folder.path(), &server.coordinator, &local, &|_| {});
    assert!(server.stop().success());
}

#[test]
fn obstacles_are_named() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let failure = |listen: &str| {
        let flags = [&["-L", listen][..], &SMALL].concat();
        match ServerProcess::start(&folder.path().join("data"), &flags) {
            Ok(_) => panic!("{listen} starts"),
            Err(error) => error,
        }
    };
    let missing = failure("fast+dpdk:host=10.9.0.1,mac=02:00:00:00:00:01,port=7");
    assert!(
        missing.contains("DPDK finds no device") && missing.contains("docs/bypass.md"),
        "{missing}"
    );
    let unknown = failure("fast+dpdk:host=10.9.0.1,port=7,dev=net_nothing0");
    assert!(unknown.contains("net_nothing0"), "{unknown}");
    let unaddressed = failure("fast+dpdk:host=0.0.0.0,port=7,dev=net_memif0");
    assert!(unaddressed.contains("an address of its own"), "{unaddressed}");
    let narrow = failure("fast+dpdk:host=10.9.0.1,port=7,gateway=fd00::1,dev=net_memif0");
    assert!(narrow.contains("not of the family"), "{narrow}");
}

/// Two network namespaces with two veth pairs between them. Dropping this value removes them. On
/// the first pair, `c0`, the kernel has addresses.
struct Cable {
    names: [String; 2],
}

impl Cable {
    /// Makes two network namespaces with the cables between them. Returns the reason if this
    /// machine does not allow them.
    fn lay(name: &str) -> Result<Self, String> {
        let names = ["a", "b"].map(|end| format!("sprat-{}-{name}-{end}", std::process::id()));
        let cable = Self { names };
        let [a, b] = &cable.names;
        ip(&["netns", "add", a])?;
        ip(&["netns", "add", b])?;
        for device in ["c0", "d0"] {
            ip(&[
                "link", "add", device, "netns", a, "type", "veth", "peer", "name", device, "netns",
                b,
            ])?;
        }
        for (number, name) in cable.names.iter().enumerate() {
            let address = format!("10.98.0.{}/24", number + 1);
            ip(&["-n", name, "address", "add", &address, "dev", "c0"])?;
            for device in ["lo", "c0", "d0"] {
                ip(&["-n", name, "link", "set", device, "up"])?;
            }
        }
        Ok(cable)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

/// Addresses that the kernel does not have.
const OWN: [&str; 2] = ["10.98.1.1", "10.98.1.2"];

/// Runs [`use_the_store`] over a veth pair between hosts of these addresses; locator options may
/// follow an address. The kernel's TCP reaches the coordinator.
fn over_a_cable(kind: &str, interface: &str, hosts: [&str; 2]) {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let cable = match Cable::lay(kind) {
        Ok(cable) => cable,
        Err(why) => return skip(&format!("{kind} over a virtual cable: {why}")),
    };
    let [a, b] = &cable.names;
    let device = format!("dev=net_{kind}0,iface={interface}");
    let listen = format!("fast+dpdk:host={},port=7,{device}", hosts[0]);
    let local = format!("fast+dpdk:host={},port=0,{device}", hosts[1]);
    let flags =
        [&["-L", &listen, "-C", "tcp:host=10.98.0.1,port=11100", "--with-coordinator"][..], &SMALL]
            .concat();
    let server = ServerProcess::start_within(
        &["ip", "netns", "exec", a],
        &folder.path().join("data"),
        &flags,
    )
    .unwrap_or_else(|error| panic!("{error}"));
    use_the_store(folder.path(), &server.coordinator, &local, &|command| within(command, b));
    assert!(server.stop().success());
}

/// Makes a command run in a network namespace.
fn within(command: &mut Command, namespace: &str) {
    let mut inside = Command::new("ip");
    inside.args(["netns", "exec", namespace]).arg(command.get_program()).args(command.get_args());
    inside.stdin(Stdio::null());
    *command = inside;
}

#[test]
fn the_store_over_packet_sockets() {
    // The kernel has its own address on this interface, and uses the interface in parallel.
    over_a_cable("af_packet", "c0", OWN);
}

#[test]
fn the_store_over_xdp_sockets() {
    // The kernel has no address on this interface. `faults/sharing.rs` tests an interface on which
    // it has one.
    over_a_cable("af_xdp", "d0", OWN);
}

#[test]
fn the_store_over_xdp_sockets_by_ipv6_and_a_tag() {
    over_a_cable("af_xdp", "d0", ["fd98::1,vlan=7", "fd98::2,vlan=7"]);
}

#[test]
fn the_store_over_xdp_sockets_at_the_address_that_the_kernel_has() {
    over_a_cable("af_xdp", "c0", ["10.98.0.1", "10.98.0.9"]);
}

/// Runs the ladder of `bench bypass` with `program` and its arguments. Returns our figures by row
/// name, and the HTML report.
fn ladder(program: &[&str], seconds: &str) -> (BTreeMap<String, Option<f64>>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let [out, html] = ["rows.json", "report.html"].map(|name| folder.path().join(name));
    let (program, before) = program.split_first().expect("a program");
    let ran = Command::new(program)
        .args(before)
        .args([
            "bench",
            "bypass",
            "--only",
            "ladder",
            "--rounds",
            "1",
            "--seconds",
            seconds,
            "--out",
        ])
        .arg(&out)
        .arg("--html")
        .arg(&html)
        .output()
        .expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let rows: Value = serde_json::from_slice(&fs::read(&out).expect("rows")).expect("JSON");
    let row =
        |row: &Value| (row["name"].as_str().expect("a name").to_owned(), row["ours"].as_f64());
    let rows = rows.as_array().expect("rows").iter().map(row).collect();
    (rows, fs::read_to_string(&html).expect("a report"))
}

#[test]
fn the_ladder_has_all_its_rungs_and_leaves_the_machine_alone() {
    let _alone = alone();
    let sprat = env!("CARGO_BIN_EXE_sprat");
    let (without, html) = ladder(&["setpriv", "--bounding-set=-sys_admin", "--", sprat], "0.02");
    assert!(html.contains("left out") && html.contains("CAP_SYS_ADMIN"), "{html}");
    assert!(without.keys().all(|name| !name.contains("af_")), "{without:?}");
    assert!(without.contains_key("driver ping, memif, p50"));
    let may = Command::new("unshare")
        .args(["--net", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !may {
        return skip("the ladder over virtual cables: no network namespace may be made here");
    }
    let (with, _) = ladder(&[sprat], "0.2");
    for word in ["af_packet", "af_xdp"] {
        let ping = format!("driver ping, {word} over a virtual cable, p50");
        let read = format!("100 B read p50, {word}, vs its driver ping");
        let write = format!("100 B write in memory p50, {word}, vs its read");
        for name in [ping, read, write] {
            assert!(
                with.get(&name).is_some_and(|ours| ours.is_some_and(|us| us > 0.0)),
                "{name}: {with:?}"
            );
        }
    }
    assert_eq!(with.len(), without.len() + 6, "no other row is missing");
    let output = Command::new("ip").args(["-o", "link"]).output().expect("ip runs");
    let interfaces = String::from_utf8_lossy(&output.stdout);
    assert!(!interfaces.contains("packet-") && !interfaces.contains("xdp-"), "{interfaces}");
}
