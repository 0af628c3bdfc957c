//! Reads sensors as on a rack: controllers by their own protocols, plugs over HTTP, programs, and
//! folders like sysfs. The controllers are third-party programs that `scripts/setup` fetches.
#![allow(clippy::disallowed_methods, reason = "a test that waits for other processes")]

use sprat_plan::power::Sensor as Described;
use sprat_power::{Cause, Error, Reading, Sensor, Watts};
use sprat_testing::{PATIENCE, skip};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A program that is killed at the end of the test.
struct Peer {
    child: Child,
    port: u16,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts one of our scripts, which uses a third-party package. Returns `None` if the package is
/// not installed.
fn peer(name: &str, package: &str, arguments: &[&str]) -> Option<Peer> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tools = here.join("../../../target/tools/controllers");
    if !tools.join(package).exists() {
        skip(&format!(
            "a controller of {package}: it is not in target/tools (scripts/setup fetches it)"
        ));
        return None;
    }
    let mut python = Command::new("python3");
    python
        .env("PYTHONPATH", tools)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(here.join("tests/peers").join(name));
    python.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = python.spawn().expect("python3");
    let mut line = String::new();
    let result = BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line);
    let mut peer = Peer { child, port: 0 };
    result.expect("a port");
    peer.port = line.trim().parse().unwrap_or_else(|_| panic!("{name} ended at once: {line:?}"));
    Some(peer)
}

fn has(program: &str) -> bool {
    let there =
        ["/usr/bin", "/usr/sbin"].iter().any(|folder| Path::new(folder).join(program).exists());
    if !there {
        skip(&format!("power over IPMI: there is no {program} (scripts/setup installs it)"));
    }
    there
}

fn login(folder: &Path, text: &str) -> String {
    let path = folder.join(format!("login-{}", text.len()));
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
    path.display().to_string()
}

fn read(described: &Described) -> Result<Reading, Error> {
    Sensor::new(described, None, PATIENCE).read()
}

fn watts(described: &Described) -> f64 {
    match read(described) {
        Ok(Reading::Watts(Watts(watts))) => watts,
        other => panic!("{other:?}"),
    }
}

fn ipmi(port: u16, login: &str, channels: &[&str]) -> Described {
    let channels = channels.iter().map(|name| (*name).to_owned()).collect();
    Described::Ipmi {
        host: "127.0.0.1".to_owned(),
        port: Some(port),
        login: Some(login.to_owned()),
        channels,
    }
}

#[test]
#[ignore = "controllers of pyghmi and openipmi, several seconds: make test-rack"]
fn dcmi_power_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    if !has("ipmitool") {
        return;
    }
    let Some(controller) = peer("ipmi.py", "pyghmi", &["212"]) else { return };
    let mut sensor = Sensor::new(
        &ipmi(controller.port, &login(folder.path(), "admin:secret\n"), &[]),
        None,
        PATIENCE,
    );
    for _ in 0..2 {
        assert_eq!(sensor.read(), Ok(Reading::Watts(Watts(212.0))));
    }
    // 0 W is accepted only for a server that is switched off.
    for (state, believed) in [("on", None), ("off", Some(Reading::Watts(Watts(0.0))))] {
        let Some(idle) = peer("ipmi.py", "pyghmi", &["0", state]) else { return };
        let read = read(&ipmi(idle.port, &login(folder.path(), "admin:secret\n"), &[]));
        assert_eq!(read.clone().ok(), believed, "{state}: {read:?}");
    }
    let wrong = ipmi(controller.port, &login(folder.path(), "admin:wrong"), &[]);
    let result = Sensor::new(&wrong, None, PATIENCE).read().expect_err("another password");
    assert!(!result.to_string().contains("wrong"), "{result}");
    let mut nobody = Sensor::new(
        &ipmi(9, &login(folder.path(), "admin:secret"), &[]),
        None,
        Duration::from_millis(300),
    );
    let begun = Instant::now();
    assert!(nobody.read().is_err() && begun.elapsed() < PATIENCE);
}

/// A full sensor record of IPMI 2.0 (section 43.1): its number, name, unit (6: W, 1: C), and the
/// size of a step of its byte.
fn record(number: u8, name: &str, unit: u8, step: u8) -> String {
    let mut bytes = vec![0, 0, 0x51, 1, 0, 0x20, 0, number, 0x15, number, 0x7f, 0x48, 0x0b, 1];
    bytes.extend([0, 0, 0, 0, 0x3f, 0x3f, 0, unit, 0, 0, step, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0]);
    bytes.extend([0; 11]);
    bytes.push(0xc0 | u8::try_from(name.len()).expect("a short name"));
    bytes.extend(name.bytes());
    bytes[4] = u8::try_from(bytes.len() - 5).expect("a short record");
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, " {byte:#04x}").expect("a string");
        text
    })
}

#[test]
#[ignore = "a controller of openipmi, several seconds: make test-rack"]
fn without_dcmi_sensors_are_read() {
    if !has("ipmitool") || !has("ipmi_sim") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let port = UdpSocket::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .expect("a port")
        .port();
    let conf = include_str!("peers/controller.conf").replace("PORT", &port.to_string());
    let mut commands =
        "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n"
            .to_owned();
    for (number, name, unit, value) in
        [(1, "PSU1 Input", 6, 42), (2, "PSU2 Input", 6, 21), (3, "Inlet Temp", 1, 12)]
    {
        let none = "0".repeat(15);
        write!(
            commands,
            "sensor_add 0x20 0 {number} 0x0b 0x01\nsensor_set_value 0x20 0 {number} {value} 0\n\
             sensor_set_event_support 0x20 0 {number} enable scanning per-state {none} {none} \
             {none} {none}\n\
             main_sdr_add 0x20{}\n",
            record(number, name, unit, 2)
        )
        .expect("a string");
    }
    commands += "mc_enable 0x20\n";
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let (conf, commands) = (put("conf", &conf), put("commands", &commands));
    let mut program = Command::new("ipmi_sim");
    program
        .arg("-n")
        .arg("-c")
        .arg(conf)
        .arg("-f")
        .arg(commands)
        .arg("-s")
        .arg(folder.path().join("state"));
    // The program ends when its input is closed.
    let child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("ipmi_sim");
    let controller = Peer { child, port };
    let login = login(folder.path(), "admin:secret");
    let begun = Instant::now();
    let result = loop {
        let result = read(&ipmi(controller.port, &login, &[])).expect_err("two supplies");
        if matches!(result.cause, Cause::Several { .. }) {
            break result;
        }
        assert!(begun.elapsed() < PATIENCE, "{result}");
    };
    assert!(
        result.to_string().contains("PSU1 Input, PSU2 Input: choose one with `channels`"),
        "{result}"
    );
    let mut both =
        Sensor::new(&ipmi(controller.port, &login, &["PSU1 Input", "PSU2 Input"]), None, PATIENCE);
    assert_eq!(both.read(), Ok(Reading::Watts(Watts(126.0))));
}

fn redfish(url: String, login: &str) -> Described {
    let login = Some(login.to_owned());
    Described::Redfish { url, login, chassis: None, authorities: None, pin: None, insecure: true }
}

/// Returns the file in which the emulator keeps `admin:secret`, hashed by its own library.
fn known(folder: &Path) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools/controllers");
    let script =
        "import bcrypt; print('admin:' + bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode())";
    let done = Command::new("python3")
        .env("PYTHONPATH", tools)
        .args(["-c", script])
        .output()
        .expect("python3");
    let path = folder.join("known");
    fs::write(&path, &done.stdout).expect("a file");
    if !done.status.success() {
        skip("a controller of sushy_tools: it is not in target/tools (scripts/setup fetches it)");
    }
    done.status.success().then_some(path)
}

#[test]
#[ignore = "a controller of sushy-tools, several seconds: make test-rack"]
fn redfish_power_is_found_in_each_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(logins) = known(folder.path()) else { return };
    let logins = logins.display().to_string();
    let mine = login(folder.path(), "admin:secret");
    for (way, expected) in [("old", 344.0), ("new", 74.5), ("supplies", 100.5)] {
        let Some(controller) = peer("redfish.py", "sushy_tools", &[way, &logins]) else { return };
        let described = redfish(format!("http://127.0.0.1:{}", controller.port), &mine);
        let mut sensor = Sensor::new(&described, None, PATIENCE);
        for _ in 0..2 {
            assert_eq!(sensor.read(), Ok(Reading::Watts(Watts(expected))), "{way}");
        }
    }
    let cause = |described: &Described| read(described).expect_err("no power").cause;
    for (way, why) in [
        ("partly", "the power supply \"Supply 2\" reports no power, so the sum would be too low"),
        ("none", "none of its chassis reports power"),
    ] {
        let Some(controller) = peer("redfish.py", "sushy_tools", &[way, &logins]) else { return };
        let cause = cause(&redfish(format!("http://127.0.0.1:{}", controller.port), &mine));
        assert!(matches!(cause, Cause::Absent(_)) && cause.to_string().contains(why), "{cause:?}");
    }
    let Some(controller) = peer("redfish.py", "sushy_tools", &["none", &logins]) else { return };
    let url = format!("http://127.0.0.1:{}", controller.port);
    assert!(matches!(
        cause(&redfish(url.clone(), &login(folder.path(), "admin:wrong"))),
        Cause::Denied(_)
    ));
    let Described::Redfish { url, login, .. } = redfish(url, &mine) else { unreachable!() };
    let careful = Described::Redfish {
        url,
        login,
        chassis: None,
        authorities: None,
        pin: None,
        insecure: false,
    };
    assert!(cause(&careful).to_string().contains("over plain http"));
}

#[test]
#[ignore = "a controller of sushy-tools, several seconds: make test-rack"]
fn certificates_are_trusted_as_described() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(logins) = known(folder.path()) else { return };
    let issued =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let put = |name: &str, text: String| {
        let path = folder.path().join(name).display().to_string();
        fs::write(&path, text).expect("a file");
        path
    };
    let (certificate, key) =
        (put("certificate", issued.cert.pem()), put("key", issued.signing_key.serialize_pem()));
    let arguments = ["new", &logins.display().to_string(), &certificate, &key];
    let Some(controller) = peer("redfish.py", "sushy_tools", &arguments) else { return };
    let mine = login(folder.path(), "admin:secret");
    let with = |authorities: Option<&String>, pin: Option<String>, insecure| Described::Redfish {
        url: format!("https://127.0.0.1:{}", controller.port),
        login: Some(mine.clone()),
        chassis: None,
        authorities: authorities.cloned(),
        pin,
        insecure,
    };
    let sum = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sha256sum");
    sum.stdin.as_ref().expect("its input").write_all(issued.cert.der()).expect("it takes all");
    let sum = String::from_utf8(sum.wait_with_output().expect("a sum").stdout).expect("digits")
        [..64]
        .to_owned();
    assert!((watts(&with(Some(&certificate), None, false)) - 74.5).abs() < 1e-9);
    assert!((watts(&with(None, Some(sum.clone()), false)) - 74.5).abs() < 1e-9);
    assert!((watts(&with(None, None, true)) - 74.5).abs() < 1e-9);
    let result = read(&with(None, None, false)).expect_err("nobody vouches for it").to_string();
    assert!(result.contains("is not trusted") && result.contains("`pin`"), "{result}");
    let result =
        read(&with(None, Some("0".repeat(64)), false)).expect_err("another one").to_string();
    assert!(result.contains(&sum), "what it shows is told: {result}");
}

/// Answers each request with a text that depends on it. Returns its address.
fn plug(answer: impl Fn(&str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = BufReader::new(stream.try_clone().expect("a copy"));
            let (mut first, mut line) = (String::new(), String::new());
            let _ = request.read_line(&mut first);
            while request.read_line(&mut line).is_ok_and(|had| had > 2) {
                line.clear();
            }
            let _ = stream.write_all(answer(&first).as_bytes());
        }
    });
    address
}

fn json(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: \
         close\r\n\r\n{body}",
        body.len()
    )
}

/// Starts a controller with these resources, whose paths are below `/redfish/v1/Chassis`. In their
/// content, `ADDRESS` stands for the controller's address. `refuses` gets the path of a request and
/// the number of requests so far, and returns whether the answer is 404.
fn controller(
    more: &[(&str, &str)],
    refuses: impl Fn(&str, usize) -> bool + Send + 'static,
) -> Described {
    let chassis = "/redfish/v1/Chassis";
    let resources: Vec<(String, String)> = more
        .iter()
        .map(|(path, body)| (format!("{chassis}{path}"), body.replace('\'', "\"")))
        .collect();
    let (sender, own) = std::sync::mpsc::channel::<String>();
    let (calls, address) = (std::cell::Cell::new(0), std::cell::OnceCell::new());
    let result = plug(move |request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        calls.set(calls.get() + 1);
        let own = address.get_or_init(|| own.recv().unwrap_or_default());
        match resources
            .iter()
            .find(|(known, _)| known == path)
            .filter(|_| !refuses(path, calls.get()))
        {
            Some((_, body)) => json(&body.replace("ADDRESS", own)),
            None => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                .to_owned(),
        }
    });
    sender.send(result.clone()).expect("it waits for that");
    let url = format!("http://{result}");
    Described::Redfish {
        url,
        login: None,
        chassis: None,
        authorities: None,
        pin: None,
        insecure: false,
    }
}

/// A resource of a controller: its path below the list of chassis, and its content.
type Resource = (&'static str, &'static str);

const ONE: Resource = ("", "{'Members':[{'@odata.id':'/redfish/v1/Chassis/1'}]}");
const POWER: Resource = ("/1", "{'Power':{'@odata.id':'/redfish/v1/Chassis/1/Power'}}");

#[test]
fn odd_redfish_controllers_report_the_total() {
    let two = "{'Members':[{'@odata.id':'/redfish/v1/Chassis/1'},{'@odata.id':'/redfish/v1/Chassis/NVMeSSD'}]}";
    let drives = "{'PowerSubsystem':{'@odata.id':'/redfish/v1/Chassis/NVMeSSD/PowerSubsystem'}}";
    let absolute = "{'Members':[{'@odata.id':'http://ADDRESS/redfish/v1/Chassis/1'}]}";
    let slash = "{'Power':{'@odata.id':'/redfish/v1/Chassis/1/Power/'}}";
    let supplies = "{'PowerControl':[{'Name':'x'}],'PowerSupplies':[{'PowerInputWatts':80.0,'LastPowerOutputWatts':72},{'PowerInputWatts':40}]}";
    let watts_123 = "{'PowerControl':[{'PowerConsumedWatts':123}]}";
    let off = "{'PowerState':'Off','Power':{'@odata.id':'/redfish/v1/Chassis/1/Power'}}";
    let none = "{'PowerControl':[{'PowerConsumedWatts':0}]}";
    let cases: [(&str, Vec<Resource>, f64); 7] = [
        ("missing", vec![ONE, POWER, ("/1/Power", supplies)], 120.0),
        ("two404", vec![("", two), POWER, ("/1/Power", watts_123), ("/NVMeSSD", drives)], 123.0),
        ("abs", vec![("", absolute), POWER, ("/1/Power", watts_123)], 123.0),
        (
            "str",
            vec![ONE, POWER, ("/1/Power", "{'PowerControl':[{'PowerConsumedWatts':'123'}]}")],
            123.0,
        ),
        (
            "slash",
            vec![ONE, ("/1", slash), ("/1/Power/", "{'PowerControl':[{'PowerConsumedWatts':77}]}")],
            77.0,
        ),
        (
            "part",
            vec![
                ONE,
                POWER,
                (
                    "/1/Power",
                    "{'PowerControl':[{'PowerConsumedWatts':90},{'PowerConsumedWatts':12}]}",
                ),
            ],
            90.0,
        ),
        ("off", vec![ONE, ("/1", off), ("/1/Power", none)], 0.0),
    ];
    for (mode, resources, expected) in cases {
        let mut sensor = Sensor::new(&controller(&resources, |_, _| false), None, PATIENCE);
        for _ in 0..2 {
            assert_eq!(sensor.read(), Ok(Reading::Watts(Watts(expected))), "{mode}");
        }
    }
    // Every second request is refused unless it is for the power itself, but the resources are
    // still found.
    let flaps = controller(&[ONE, POWER, ("/1/Power", watts_123)], |path, calls| {
        calls % 2 == 1 && !path.ends_with("/Power")
    });
    assert!((watts(&flaps) - 123.0).abs() < 1e-9);
}

#[test]
fn redfish_parts_are_never_taken_for_the_total() {
    let null = "{'PowerControl':[{'PowerConsumedWatts':null},{'PowerConsumedWatts':12.0,'Name':'CPU sub-system'}]}";
    let two = "{'Members':[{'@odata.id':'/redfish/v1/Chassis/1'},{'@odata.id':'/redfish/v1/Chassis/Fans'}]}";
    let fans = "{'Power':{'@odata.id':'/redfish/v1/Chassis/Fans/Power'}}";
    let watts_12 = "{'PowerControl':[{'PowerConsumedWatts':12}]}";
    let elsewhere = "{'Members':[{'@odata.id':'http://203.0.113.1/redfish/v1/Chassis/1'}]}";
    let cases: [(&str, Vec<Resource>, &str); 6] = [
        ("null", vec![ONE, POWER, ("/1/Power", null)], "its power has no value"),
        (
            "zero",
            vec![ONE, POWER, ("/1/Power", "{'PowerControl':[{'PowerConsumedWatts':0}]}")],
            "0 W although the server is on",
        ),
        ("flap", vec![ONE], "none of its chassis reports power (1)"),
        ("nothing", vec![], "/redfish/v1/Chassis does not exist"),
        (
            "a part",
            vec![("", two), POWER, ("/1/Power", null), ("/Fans", fans), ("/Fans/Power", watts_12)],
            "1, Fans: choose one with `chassis`",
        ),
        ("elsewhere", vec![("", elsewhere)], "not a link to a resource at the address in `url`"),
    ];
    for (mode, resources, why) in cases {
        let result = read(&controller(&resources, |_, _| false)).expect_err(mode).to_string();
        assert!(result.contains(why), "{mode}: {result}");
    }
}

#[test]
fn plugs_are_read_by_their_own_requests() {
    let shelly = plug(|request| match request {
        "GET /rpc/Switch.GetStatus?id=1 HTTP/1.1\r\n" => {
            json(r#"{"id":1,"output":true,"apower":38.5,"aenergy":{"total":4.5}}"#)
        }
        _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
    });
    assert!((watts(&Described::Shelly { address: shelly.clone(), switch: 1 }) - 38.5).abs() < 1e-9);
    let result = read(&Described::Shelly { address: shelly, switch: 0 })
        .expect_err("another switch")
        .to_string();
    assert!(result.contains("Switch.GetStatus?id=0 does not exist"), "{result}");
    let tasmota = plug(|request| match request {
        "GET /cm?user=admin&password=a%20b&cmnd=Status%208 HTTP/1.1\r\n" => {
            json(r#"{"StatusSNS":{"ENERGY":{"Power":[20,18.5]}}}"#)
        }
        _ => json(r#"{"WARNING":"Need user=<username>&password=<password>"}"#),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let login = Some(login(folder.path(), "admin:a b"));
    assert!((watts(&Described::Tasmota { address: tasmota.clone(), login }) - 38.5).abs() < 1e-9);
    let result =
        read(&Described::Tasmota { address: tasmota, login: None }).expect_err("no password");
    assert!(matches!(result.cause, Cause::Denied(_)), "{result}");
    let nobody = TcpListener::bind("127.0.0.1:0")
        .and_then(|one| one.local_addr())
        .expect("a port")
        .to_string();
    let result = read(&Described::Shelly { address: nobody, switch: 0 }).expect_err("nobody");
    assert!(matches!(result.cause, Cause::Unreachable(_)), "{result}");
}

#[test]
fn slow_answers_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let drips = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n";
        let mut sent = stream.write_all(head.as_bytes());
        while sent.is_ok() {
            thread::sleep(Duration::from_millis(20));
            sent = stream.write_all(b" ");
        }
        let _ = stream.read(&mut [0]);
    });
    let described = Described::Shelly { address, switch: 0 };
    let result =
        Sensor::new(&described, None, Duration::from_millis(400)).read().expect_err("no end");
    assert!(matches!(result.cause, Cause::Silent(_)), "{result}");
    drips.join().expect("it sees that nobody listens");
}

#[test]
fn implausible_power_is_refused() {
    let described = Described::Command { command: vec!["echo".to_owned(), "65535".to_owned()] };
    let result = Sensor::new(&described, Some("root@server"), PATIENCE)
        .read()
        .expect_err("the largest of 16 bits")
        .to_string();
    assert!(result.contains("65.5 kW, above the limit of 30 kW"), "{result}");
    assert_eq!(read(&described), Ok(Reading::Watts(Watts(65_535.0))), "a rack may");
}

#[test]
fn programs_and_folders_are_read() {
    let shell = |script: &str| Described::Command {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
    };
    assert!((watts(&shell("echo; echo 36.25 W")) - 36.25).abs() < 1e-9);
    let result =
        read(&shell("echo the rail is asleep >&2; exit 4")).expect_err("it failed").to_string();
    assert!(result.contains("the rail is asleep"), "{result}");

    let folder = tempfile::tempdir().expect("a folder");
    let put = |path: &str, text: &str| {
        let path = folder.path().join("class").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, format!("{text}\n")).expect("a file");
    };
    let root = || Some(folder.path().display().to_string());
    let mut rapl = Sensor::new(&Described::Rapl { root: root() }, None, PATIENCE);
    assert!(matches!(rapl.read().expect_err("no counter").cause, Cause::Absent(_)));
    put("powercap/intel-rapl:0/name", "package-0");
    put("powercap/intel-rapl:0/max_energy_range_uj", "10000000");
    put("powercap/intel-rapl:0/energy_uj", "9000000");
    assert_eq!(rapl.read(), Ok(Reading::Joules(0.0)));
    put("powercap/intel-rapl:0/energy_uj", "2000000");
    assert_eq!(rapl.read(), Ok(Reading::Joules(3.0)), "it went round");
    // A wraparound would mean hundreds of kilowatts: the server has restarted, or slept.
    put("powercap/intel-rapl:0/max_energy_range_uj", "262143328850");
    put("powercap/intel-rapl:0/energy_uj", "100000000000");
    let result = rapl.read().expect_err("from 2 J to 100 kJ in no time");
    assert!(matches!(result.cause, Cause::Restarted(_)), "{result}");
    put("powercap/intel-rapl:0/energy_uj", "5000");
    assert!(matches!(rapl.read().expect_err("162 kJ in no time").cause, Cause::Restarted(_)));
    put("powercap/intel-rapl:0/energy_uj", "1005000");
    assert_eq!(rapl.read(), Ok(Reading::Joules(1.0)), "it counts from there");
    put("hwmon/hwmon3/name", "power_meter");
    put("hwmon/hwmon3/power1_average", "91000000");
    assert!((watts(&Described::Hwmon { root: root(), channels: Vec::new() }) - 91.0).abs() < 1e-9);
}
