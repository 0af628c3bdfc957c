//! Real hosts: the tests make, connect and use them, and check that they are removed whatever
//! happens in between.

#![expect(clippy::disallowed_methods, reason = "tests sleep between looks at what others do")]

use sprat_lab::hosts::{
    Cable, CableEnd, Commands, Event, Host, HostsError, HostsPlan, Interface, Job, LabHosts,
    Leftover, Route, StateDir, Stream, down, join, missing_privileges, within,
};
use sprat_testing::{PATIENCE, skip};
use std::fs;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Environment variable for the owner process: the directory of its lab's state, and the lab's
/// name.
const OWNER: &str = "SPRAT_LAB_TEST_OWNER";

#[test]
fn two_hosts_reach_each_other_and_leave_nothing() {
    let Some(test) = Test::new("pair") else { return };
    let mut standing = LabHosts::make(test.pair(), &test.dir).unwrap();
    standing.configure().unwrap();
    // Addresses are usable immediately: sockets of both families can be bound without waiting.
    for (host, address) in [(0, "10.64.0.1"), (0, "fd64::1"), (1, "10.64.0.2"), (1, "fd64::2")] {
        let bound =
            within(standing.namespace(host).as_fd(), || std::net::TcpListener::bind((address, 0)));
        bound.unwrap().unwrap_or_else(|error| panic!("{address}: {error}"));
    }
    for address in ["10.64.0.2", "fd64::2"] {
        assert_eq!(echo(&standing, address), b"through the cable");
    }
    let names = test.names();
    assert!(names.iter().all(|name| name.exists()), "ip netns lists them");
    let listed = test.dir.list().unwrap();
    assert_eq!(
        (&listed[0].name, listed[0].alive, listed[0].owner),
        (&test.lab, true, std::process::id())
    );
    assert!(matches!(
        LabHosts::make(test.pair(), &test.dir),
        Err(HostsError::Exists { owner, .. }) if owner == std::process::id()
    ));

    assert_eq!(standing.down().unwrap(), []);
    assert!(names.iter().all(|name| !name.exists()), "ip netns lists them no longer");
    assert_eq!(test.dir.list().unwrap(), []);
}

#[test]
fn sysctls_are_set() {
    let Some(test) = Test::new("sysctl") else { return };
    let mut plan = test.pair();
    plan.hosts[0].interfaces[0].mtu = 9000;
    plan.hosts[0].sysctls.insert("ipv4.ip_forward".to_owned(), "1".to_owned());
    plan.hosts[0].sysctls.insert("ipv4.tcp_rmem".to_owned(), "4096 65536 131072".to_owned());
    plan.hosts[1]
        .routes
        .push(Route { to: "0.0.0.0/0".parse().unwrap(), via: "10.64.0.1".parse().unwrap() });
    plan.hosts[1]
        .routes
        .push(Route { to: "fd65::/64".parse().unwrap(), via: "fd64::1".parse().unwrap() });
    let mut standing = LabHosts::make(plan, &test.dir).unwrap();
    standing.configure().unwrap();
    let read = |host: usize, path: &str| {
        let text =
            within(standing.namespace(host).as_fd(), || fs::read_to_string(path)).unwrap().unwrap();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(read(0, "/proc/sys/net/ipv4/ip_forward"), ["1"]);
    assert_eq!(read(1, "/proc/sys/net/ipv4/ip_forward"), ["0"]);
    assert_eq!(read(0, "/proc/sys/net/ipv4/tcp_rmem"), ["4096", "65536", "131072"]);
    assert_eq!(read(1, "/proc/sys/net/ipv4/tcp_rmem"), ["4096", "1048576", "1073741824"]);
    let links = output(&standing, 0, "ip -o link show eth0");
    assert!(links.contains("mtu 9000") && links.contains("qlen 10000"), "{links}");
    let routes = output(&standing, 1, "ip route; ip -6 route");
    assert!(
        routes.contains("default via 10.64.0.1") && routes.contains("fd65::/64 via fd64::1"),
        "{routes}"
    );
}

#[test]
fn a_bridge_joins_hosts_and_a_lab_may_outlive_its_maker() {
    let Some(test) = Test::new("bridge") else { return };
    let mut plan = test.pair();
    let port = |name: &str| Interface { name: name.to_owned(), addresses: Vec::new(), mtu: 1500 };
    let ports = vec![port("p0"), port("p1")];
    plan.hosts.push(Host {
        name: "switch".to_owned(),
        interfaces: ports,
        bridge: Some("br0".to_owned()),
        ..Host::default()
    });
    let cable = |host, port: &str| Cable {
        ends: [
            CableEnd { host, interface: "eth0".to_owned() },
            CableEnd { host: 2, interface: port.to_owned() },
        ],
    };
    plan.cables = vec![cable(0, "p0"), cable(1, "p1")];
    for (bridge, what) in [("p0", "that no interface has"), ("", "is not a name for a bridge")] {
        plan.hosts[2].bridge = Some(bridge.to_owned());
        let error = plan.check().unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    plan.hosts[2].bridge = Some("br0".to_owned());
    let mut addressed = plan.clone();
    addressed.hosts[2].interfaces[0].addresses = plan.hosts[0].interfaces[0].addresses.clone();
    assert!(
        addressed
            .check()
            .unwrap_err()
            .to_string()
            .contains("is a port of a bridge and has addresses")
    );

    let mut standing = LabHosts::make(plan, &test.dir).unwrap();
    standing.configure().unwrap();
    assert_eq!(echo(&standing, "10.64.0.2"), b"through the cable");
    // A host cannot join a lab that has an owner.
    let late = pair(&test.lab).hosts.swap_remove(1);
    let late = Host {
        name: "late".to_owned(),
        interfaces: vec![Interface {
            addresses: vec!["10.64.0.3/24".parse().unwrap()],
            ..late.interfaces[0].clone()
        }],
        ..late
    };
    let joined = |host: &Host, port_name: &str| {
        join(&test.lab, &test.dir, host, ("switch", "br0"), &port(port_name))
    };
    assert!(matches!(joined(&late, "p2"), Err(HostsError::Exists { .. })));
    standing.leave();
    assert!(test.names().iter().all(|name| name.exists()), "the hosts stay without an owner");
    // A failed join leaves nothing behind. This one fails because the name of its port is taken.
    let path = Path::new("/run/netns").join(format!("{}-late", test.lab));
    assert!(joined(&late, "p1").is_err() && !path.exists());
    joined(&late, "p2").unwrap();
    assert!(matches!(joined(&late, "p3"), Err(HostsError::Taken { .. })));
    let namespace = fs::File::open(&path).unwrap();
    let heard = within(namespace.as_fd(), || {
        Command::new("ping").args(["-c", "1", "-W", "10", "10.64.0.1"]).output().unwrap()
    });
    assert!(heard.unwrap().status.success(), "the joined host reaches the first one");
    drop(namespace);
    assert_eq!(down(&test.lab, &test.dir).unwrap(), []);
    assert!(test.names().iter().all(|name| !name.exists()) && !path.exists());
}

#[test]
fn commands_report_output_and_status() {
    let Some(test) = Test::new("run") else { return };
    let mut standing = LabHosts::make(test.pair(), &test.dir).unwrap();
    standing.configure().unwrap();
    let job = |host, command: &str| Job { host, command: command.to_owned() };
    let jobs = [
        job(0, "echo $SPRAT_LAB $SPRAT_HOST $RIGHT_V4 $RIGHT_V6; printf unended; exit 3"),
        job(1, "echo wrong >&2; kill -9 $$"),
        job(1, "yes | head -c 300000 | tr -d '\\n'"),
    ];
    let mut commands = Commands::start(&standing, &jobs).unwrap();
    let (mut said, mut long) = (Vec::new(), 0);
    let begun = Instant::now();
    while !commands.is_over() {
        assert!(begun.elapsed() < PATIENCE, "they do not end");
        match commands.next(Duration::from_secs(1)) {
            Some(Event::Line { job: 2, text, .. }) => long += text.len(),
            Some(Event::Line { job, stream, text }) => {
                said.push((job, stream, String::from_utf8(text).unwrap()))
            }
            _ => {}
        }
    }
    said.sort_by_key(|&(job, ..)| job);
    let expected = [
        (0, Stream::Output, format!("{} left 10.64.0.2 fd64::2", test.lab)),
        (0, Stream::Output, "unended".to_owned()),
        (1, Stream::Error, "wrong".to_owned()),
    ];
    assert_eq!(said, expected);
    assert_eq!(long, 150_000, "a line that is too long arrives completely, in parts");
    let ends: Vec<_> = (0..3).map(|job| commands.status(job).unwrap().to_string()).collect();
    assert_eq!(ends, ["exit status: 3", "signal: 9 (SIGKILL)", "exit status: 0"]);
}

/// A process in the background may hold a command's output open. The end of the command is reported
/// nevertheless, after its lines.
#[test]
fn a_command_ends_after_its_last_line() {
    const LINES: usize = 2_000;
    let Some(test) = Test::new("last") else { return };
    let mut standing = LabHosts::make(test.pair(), &test.dir).unwrap();
    standing.configure().unwrap();
    let job = |command: String| Job { host: 0, command };
    let jobs = [job(format!("seq {LINES}")), job("sleep 1000 & echo left it".to_owned())];
    let mut commands = Commands::start(&standing, &jobs).unwrap();
    let (mut lines, mut ended) = ([0, 0], Vec::new());
    let begun = Instant::now();
    while ended.len() < 2 {
        assert!(begun.elapsed() < PATIENCE, "they do not end: {ended:?}");
        match commands.next(Duration::from_secs(1)) {
            Some(Event::Line { job, .. }) => lines[job] += 1,
            Some(Event::Ended { job, .. }) => ended.push((job, lines[job])),
            None => {}
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [(0, LINES), (1, 1)]);
    assert!(!commands.is_over(), "a background process still holds the output of one command");
}

#[test]
fn no_process_is_left_behind() {
    let Some(test) = Test::new("stay") else { return };
    let mut standing = LabHosts::make(test.pair(), &test.dir).unwrap();
    standing.configure().unwrap();
    // One process ignores signals, and one has left its group and its parent.
    let command = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 1000' & echo \
                   $$; wait; sleep 1000";
    let mut commands =
        Commands::start(&standing, &[Job { host: 0, command: command.to_owned() }]).unwrap();
    let mut pids = Vec::new();
    while pids.len() < 2 {
        if let Some(Event::Line { text, .. }) = commands.next(PATIENCE) {
            pids.push(String::from_utf8(text).unwrap());
        }
    }
    let lives = |pid: &String| Path::new("/proc").join(pid).join("exe").exists();
    assert!(pids.iter().all(lives));
    drop(commands);
    standing.down().unwrap();
    assert!(!pids.iter().any(lives), "{pids:?}");
}

#[test]
fn down_removes_what_a_killed_owner_left() {
    let Some(test) = Test::new("crash") else { return };
    let mut owner = test.owner();
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    let names = test.names();
    assert!(names.iter().all(|name| name.exists()), "a killed owner takes nothing down");
    let listed = test.dir.list().unwrap();
    assert!(!listed[0].alive && listed[0].namespaces.len() == 2, "{listed:?}");
    assert!(owner.sleeper_lives(), "commands in the lab continue to run");

    assert_eq!(down(&test.lab, &test.dir).unwrap(), []);
    assert!(names.iter().all(|name| !name.exists()));
    assert!(!owner.sleeper_lives(), "the commands end with the lab");
    assert!(matches!(down(&test.lab, &test.dir), Err(HostsError::Unknown { .. })));
}

#[test]
fn make_removes_what_a_killed_owner_left() {
    let Some(test) = Test::new("again") else { return };
    let mut owner = test.owner();
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    // While the old namespace is open, the kernel gives its inode number to no other.
    let before = fs::File::open(&test.names()[0]).unwrap();
    let standing = LabHosts::make(test.pair(), &test.dir).unwrap();
    let inode = fs::metadata(&test.names()[0]).unwrap().ino();
    assert_ne!(inode, before.metadata().unwrap().ino(), "the namespace is a new one");
    assert!(!owner.sleeper_lives());
    standing.down().unwrap();
}

#[test]
fn down_signals_a_living_owner() {
    let Some(test) = Test::new("ask") else { return };
    let mut owner = test.owner();
    assert_eq!(down(&test.lab, &test.dir).unwrap(), []);
    assert!(test.names().iter().all(|name| !name.exists()));
    assert!(!owner.child.wait().unwrap().success(), "the signal ended it");
}

#[test]
fn foreign_namespaces_are_not_touched() {
    let Some(test) = Test::new("taken") else { return };
    let names = test.names();
    let foreign = Foreign::make(&names[1]);
    let error = LabHosts::make(test.pair(), &test.dir).unwrap_err();
    assert!(matches!(&error, HostsError::Taken { path } if *path == names[1]), "{error}");
    assert!(!names[0].exists(), "nothing was made");
    assert_eq!(test.dir.list().unwrap(), [], "no state file is left");
    foreign.assert_untouched();
}

#[test]
fn a_later_namespace_of_the_name_is_not_touched() {
    let Some(test) = Test::new("later") else { return };
    let standing = LabHosts::make(test.pair(), &test.dir).unwrap();
    let names = test.names();
    ip(&["netns", "delete", names[0].file_name().unwrap().to_str().unwrap()]);
    let foreign = Foreign::make(&names[0]);
    let left = standing.down().unwrap();
    assert_eq!(
        left,
        [Leftover { path: names[0].clone(), why: "another namespace, made by others" }]
    );
    foreign.assert_untouched();
    assert!(!names[1].exists(), "the lab's own namespace is removed nevertheless");
}

#[test]
fn a_state_file_with_foreign_names_is_refused() {
    let Some(test) = Test::new("forged") else { return };
    fs::create_dir_all(test.dir.path()).unwrap();
    let write =
        |text: &str| fs::write(test.dir.path().join(format!("{}.toml", test.lab)), text).unwrap();
    for namespace in ["../../etc/passwd", "other-left", &test.lab, &format!("{}-", test.lab)] {
        write(&format!("lab = {:?}\nowner = 1\n[[namespace]]\nname = {namespace:?}\n", test.lab));
        assert!(matches!(down(&test.lab, &test.dir), Err(HostsError::State { .. })), "{namespace}");
    }
    write("lab = 1");
    assert!(matches!(down(&test.lab, &test.dir), Err(HostsError::State { .. })));
}

#[test]
fn a_failure_half_way_leaves_nothing() {
    let Some(test) = Test::new("half") else { return };
    let mut plan = test.pair();
    plan.hosts[1].sysctls.insert("ipv4.no_such_thing".to_owned(), "1".to_owned());
    let error = LabHosts::make(plan, &test.dir).unwrap_err().to_string();
    assert!(error.contains("host.right: set net.ipv4.no_such_thing"), "{error}");
    assert!(test.names().iter().all(|name| !name.exists()));
    assert_eq!(test.dir.list().unwrap(), []);
}

#[test]
fn a_missing_interface_is_named() {
    let Some(test) = Test::new("absent") else { return };
    let mut plan = test.pair();
    plan.cables.clear();
    let error = LabHosts::make(plan, &test.dir).unwrap().configure().unwrap_err().to_string();
    assert!(error.starts_with("host.left: set up interface eth0: "), "{error}");
}

/// This is not a test but a process that the tests start and kill. It makes a lab, runs a command
/// in it, prints a line, and waits.
#[test]
fn owner_process() {
    let Ok(variable) = std::env::var(OWNER) else { return };
    let (dir, lab) = variable.split_once('\n').unwrap();
    let mut standing = LabHosts::make(pair(lab), &StateDir::at(dir)).unwrap();
    standing.configure().unwrap();
    let job = Job { host: 0, command: "echo $$; exec sleep 1000".to_owned() };
    let mut commands = Commands::start(&standing, &[job]).unwrap();
    let Some(Event::Line { text, .. }) = commands.next(PATIENCE) else { panic!("it says nothing") };
    fs::write(Path::new(dir).join("sleeper.part"), text).unwrap();
    fs::rename(Path::new(dir).join("sleeper.part"), Path::new(dir).join("sleeper")).unwrap();
    std::thread::sleep(PATIENCE);
}

struct Test {
    lab: String,
    dir: StateDir,
    _folder: tempfile::TempDir,
}

impl Test {
    /// Returns `None` if this machine does not allow hosts to be made.
    fn new(what: &str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let missing = missing_privileges();
        if !missing.is_empty() {
            skip(&format!("hosts of the lab: needs {}", missing.join(" and ")));
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let lab =
            format!("t{}-{}-{what}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Some(Self { lab, dir: StateDir::at(folder.path().join("labs")), _folder: folder })
    }

    fn pair(&self) -> HostsPlan {
        pair(&self.lab)
    }

    fn names(&self) -> Vec<PathBuf> {
        ["left", "right"]
            .iter()
            .map(|host| Path::new("/run/netns").join(format!("{}-{host}", self.lab)))
            .collect()
    }

    /// Starts another process that makes the lab, and waits until a command runs in the lab.
    fn owner(&self) -> Owner {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "hosts::owner_process"]).stdout(Stdio::null());
        command.env(OWNER, format!("{}\n{}", self.dir.path().display(), self.lab));
        let mut owner = Owner { child: command.spawn().unwrap(), sleeper: String::new() };
        let begun = Instant::now();
        while owner.sleeper.is_empty() {
            assert!(
                begun.elapsed() < PATIENCE && owner.child.try_wait().unwrap().is_none(),
                "the owner does not stand"
            );
            owner.sleeper = fs::read_to_string(self.dir.path().join("sleeper")).unwrap_or_default();
            std::thread::sleep(Duration::from_millis(5));
        }
        owner
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        let _ = down(&self.lab, &self.dir);
    }
}

struct Owner {
    child: Child,
    sleeper: String,
}

impl Owner {
    fn sleeper_lives(&self) -> bool {
        Path::new("/proc").join(&self.sleeper).join("exe").exists()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A namespace that no lab made.
struct Foreign {
    path: PathBuf,
    inode: u64,
}

impl Foreign {
    fn make(path: &Path) -> Self {
        ip(&["netns", "add", path.file_name().unwrap().to_str().unwrap()]);
        Self { path: path.to_owned(), inode: fs::metadata(path).unwrap().ino() }
    }

    fn assert_untouched(&self) {
        assert_eq!(fs::metadata(&self.path).unwrap().ino(), self.inode);
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        ip(&["netns", "delete", self.path.file_name().unwrap().to_str().unwrap()]);
    }
}

fn pair(lab: &str) -> HostsPlan {
    let host = |name: &str, number: u8| Host {
        name: name.to_owned(),
        interfaces: vec![Interface {
            name: "eth0".to_owned(),
            addresses: [format!("10.64.0.{number}/24"), format!("fd64::{number}/64")]
                .map(|ip| ip.parse().unwrap())
                .into(),
            mtu: 1500,
        }],
        ..Host::default()
    };
    let end = |host| CableEnd { host, interface: "eth0".to_owned() };
    HostsPlan {
        name: lab.to_owned(),
        hosts: vec![host("left", 1), host("right", 2)],
        cables: vec![Cable { ends: [end(0), end(1)] }],
    }
}

/// Sends bytes from the first host to a listener in the second, and returns what arrived.
fn echo(standing: &LabHosts, address: &str) -> Vec<u8> {
    let listener =
        within(standing.namespace(1).as_fd(), || std::net::TcpListener::bind((address, 0)))
            .unwrap()
            .unwrap();
    let to = listener.local_addr().unwrap();
    let mut sender = within(standing.namespace(0).as_fd(), || std::net::TcpStream::connect(to))
        .unwrap()
        .unwrap();
    sender.write_all(b"through the cable").unwrap();
    drop(sender);
    std::io::read_to_string(listener.accept().unwrap().0).unwrap().into_bytes()
}

/// Returns a command's output.
fn output(standing: &LabHosts, host: usize, command: &str) -> String {
    let run = || Command::new("sh").args(["-c", command]).output();
    let output = within(standing.namespace(host).as_fd(), run).unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}
