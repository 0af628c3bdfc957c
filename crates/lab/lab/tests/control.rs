//! Watching and changing running boxes over their control sockets.

use crate::support;
use proptest::prelude::*;
use sprat_lab::config::{LineWords, Word, set};
use sprat_lab::control::{
    ControlDir, ControlError, MAX_CONNECTIONS, MAX_REQUEST_BYTES, Request, Server,
};
use sprat_lab::engine::{Engine, Forwarding};
use sprat_lab::filter::{Compiler, MAX_RULES, RuleWords};
use sprat_lab::hosts::StateDir;
use sprat_lab::line::LineSettings;
use sprat_testing::skip;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;
use support::far::{Far, PATIENCE, running};
use support::{Sample, numbered};

/// A box of two ports with a control socket, in a directory of its own.
struct Test {
    server: Server,
    engine: Engine,
    far_ends: Vec<Far>,
    dir: ControlDir,
    folder: tempfile::TempDir,
}

fn test(name: &str) -> Test {
    let folder = tempfile::tempdir().expect("a folder");
    // The path is longer than a socket address can be, which must not matter.
    let dir = ControlDir::of(&StateDir::at(folder.path().join("long".repeat(30)).join("labs")));
    let (engine, far_ends) =
        running(&[LineSettings::default(), LineSettings::default()], Forwarding::Cross, None);
    let server = Server::start(&dir, name, engine.handle().clone()).expect("it listens");
    Test { server, engine, far_ends, dir, folder }
}

impl Test {
    /// Opens a connection on which the test sends lines as they are.
    fn raw(&self) -> BufReader<UnixStream> {
        let short = self.folder.path().join("s");
        if !short.exists() {
            std::os::unix::fs::symlink(self.dir.path(), &short).expect("a link");
        }
        let stream = UnixStream::connect(short.join(format!("{}.sock", self.server.name())))
            .expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        BufReader::new(stream)
    }
}

/// Sends a line and returns the answer.
fn request_raw(raw: &mut BufReader<UnixStream>, line: &str) -> String {
    raw.get_mut().write_all(line.as_bytes()).expect("it listens");
    let mut answer = String::new();
    raw.read_line(&mut answer).expect("it answers");
    answer
}

fn line(words: &[(&str, &str)]) -> LineWords {
    let words: serde_json::Map<_, _> =
        words.iter().map(|(key, word)| ((*key).to_owned(), (*word).into())).collect();
    serde_json::from_value(words.into()).expect("words of a line")
}

#[test]
fn a_box_reports_its_settings_and_counters() {
    let mut test = test("wan");
    test.far_ends[0].send(&Sample { payload: 10_000, ..Sample::default() }.bytes());
    let whole = test.far_ends[1].receive();
    whole.free(&mut test.far_ends[1].memory);
    test.far_ends[0].send(&Sample { v6: true, ..Sample::default() }.bytes());
    let other = test.far_ends[1].receive();
    other.free(&mut test.far_ends[1].memory);
    let mut client = test.dir.connect(Some("wan")).expect("it runs");
    let report = client.report().expect("it answers");
    assert_eq!(report.lines[0].counters, test.engine.report().expect("it runs").lines[0].counters);
    assert_eq!(
        (report.lines[0].counters.left.segments, report.lines[0].counters.flows.len()),
        (8, 2)
    );
    let state = client.settings().expect("it answers");
    assert_eq!(
        (&state.name[..], state.process, &state.forward[..]),
        ("wan", std::process::id(), "cross")
    );
    assert_eq!(state.ports.iter().map(|port| &port.port[..]).collect::<Vec<_>>(), ["p0", "p1"]);
    assert_eq!(state.ports[0].line, LineWords::of(&LineSettings::default()));
    assert!(state.memory >= 2 * sprat_lab::memory::MIN_MEMORY - 4096, "{state:?}");
}

#[test]
fn set_changes_only_the_named_settings() {
    let mut test = test("wan");
    let mut client = test.dir.connect(None).expect("the only one");
    assert_eq!(client.name(), "wan");
    let changed = client
        .set(Some("p1"), &line(&[("loss", "100%"), ("rate", "1Gb/s"), ("buffer", "1MB")]))
        .expect("it can be");
    assert_eq!(changed.warnings, [""; 0]);
    let [to] = &changed.lines[..] else { panic!("{changed:?}") };
    let usual = LineWords::of(&LineSettings::default());
    let words = LineWords {
        loss: Some("100%".into()),
        rate: Some("1Gb/s".into()),
        buffer: Some("1MB".into()),
        ..usual
    };
    assert_eq!((&to.port[..], &to.line), ("p1", &words));
    client.report().expect("a report after a change shows it");
    test.far_ends[0].send(&numbered(1, 60));
    while client.report().expect("it runs").lines[0].counters.drops.loss == 0 {}
    client.set(Some("p1"), &line(&[("loss", "none")])).expect("it can be");
    client.report().expect("a report after a change shows it");
    test.far_ends[0].send(&numbered(2, 60));
    assert_eq!(test.far_ends[1].number(), 2, "1 was lost");
    client.set(None, &line(&[("delay", "1ms")])).expect("it can be");
    let state = client.settings().expect("it answers");
    let delay_and_rate =
        |port: usize| (state.ports[port].line.delay.clone(), state.ports[port].line.rate.clone());
    assert_eq!(delay_and_rate(0), (Some("1ms".into()), Some("none".into())));
    assert_eq!(delay_and_rate(1), (Some("1ms".into()), Some("1Gb/s".into())));
}

#[test]
fn a_refused_set_changes_nothing() {
    let test = test("wan");
    let mut client = test.dir.connect(Some("wan")).expect("it runs");
    let before = client.settings().expect("it answers");
    for (port, words, expected) in [
        (Some("p9"), line(&[("delay", "1ms")]), "no port \"p9\"; the ports are p0, p1"),
        (
            None,
            line(&[("delay", "1ms"), ("rate", "2THz")]),
            "rate \"2THz\": want a rate from 1kb/s to 1000Gb/s",
        ),
        (Some("p0"), line(&[("delay", "501ms")]), "delay \"501ms\": want a time up to 500ms"),
        (Some("p0"), LineWords::default(), "nothing to change was named"),
    ] {
        let error = client.set(port, &words).expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(client.settings().expect("it answers"), before);
}

#[test]
fn rules_change_while_packets_pass_and_kept_rules_keep_their_counters() {
    if let Err(error) = Compiler::load() {
        return skip(&format!("rules that change: {error}"));
    }
    let mut test = test("wan");
    let mut client = test.dir.connect(Some("wan")).expect("it runs");
    let rule = |expression: &str, from: Option<&str>, action: &str| RuleWords {
        expression: expression.to_owned(),
        from: from.map(str::to_owned),
        action: action.to_owned(),
    };
    let (all, long) =
        (rule("ether proto 0x88b5", None, "count"), rule("len > 100", Some("p0"), "drop"));
    assert_eq!(client.rules().expect("it answers").rules, []);
    client.add_rule(all.clone(), None).expect("it can be");
    test.far_ends[0].send(&numbered(1, 200));
    test.far_ends[1].send(&numbered(2, 200));
    assert_eq!((test.far_ends[1].number(), test.far_ends[0].number()), (1, 2));
    let list = client.add_rule(long.clone(), Some(0)).expect("it can be");
    assert_eq!(list.rules.iter().map(|state| &state.rule).collect::<Vec<_>>(), [&long, &all]);
    assert_eq!(
        (list.rules[1].seen.packets, list.removed),
        (2, vec![]),
        "packets of both directions count"
    );
    test.far_ends[0].send(&numbered(3, 200));
    test.far_ends[0].send(&numbered(4, 90));
    assert_eq!(test.far_ends[1].number(), 4, "3 was dropped");
    let vlan = rule("ip", None, "rewrite:dscp=46,ecn=ce,vlan=7,destination=02:00:00:00:0a:01");
    let list = client.replace_rules(vec![vlan.clone(), all.clone()]).expect("it can be");
    assert_eq!((&list.rules[0].rule, list.rules[0].seen.packets), (&vlan, 0));
    assert_eq!((&list.rules[1].rule, list.rules[1].seen.packets), (&all, 3), "it went on");
    assert_eq!((&list.removed[0].rule, list.removed[0].seen.packets), (&long, 1));
    test.far_ends[0].send(&numbered(5, 200));
    assert_eq!(test.far_ends[1].number(), 5);
    let list = client.remove_rule(0).expect("it is there");
    assert_eq!((list.rules.len(), list.rules[0].seen.packets), (1, 4));
    assert_eq!(client.report().expect("it runs").filters, [list.rules[0].seen]);

    let before = client.rules().expect("it answers");
    for (refused, expected) in [
        (client.add_rule(rule("tcp porto 80", None, "count"), None), "filter \"tcp porto 80\": "),
        (
            client.add_rule(rule("tcp", Some("p7"), "count"), None),
            "from: no such port; the ports are p0, p1",
        ),
        (client.add_rule(rule("tcp", None, "eat"), None), "action: \"eat\" is not an action"),
        (
            client.add_rule(rule("tcp", None, "mirror:p1"), None),
            "action: a pair of ports cannot mirror: it needs a switch",
        ),
        (client.add_rule(all.clone(), Some(2)), "no rule 2: there are 1, numbered from 0"),
        (client.remove_rule(1), "no rule 1: there are 1, numbered from 0"),
        (
            client.replace_rules(vec![all.clone(); MAX_RULES + 1]),
            "65 rules; 64 are the limit of a box",
        ),
    ] {
        let error = refused.expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(client.rules().expect("it answers"), before);
    let full = client.replace_rules(vec![all.clone(); MAX_RULES]).expect("as many as there may be");
    assert_eq!(
        full.rules.iter().map(|state| state.seen.packets).sum::<u64>(),
        4,
        "one of them is the old one"
    );
    let error = client.add_rule(all, None).expect_err("one too many").to_string();
    assert_eq!(error, "65 rules; 64 are the limit of a box");
}

#[test]
fn set_warns_when_memory_is_too_small() {
    let test = test("wan");
    let mut client = test.dir.connect(Some("wan")).expect("it runs");
    let changed = client
        .set(Some("p1"), &line(&[("delay", "500ms"), ("rate", "10Gb/s")]))
        .expect("it can be");
    let [warning] = &changed.warnings[..] else { panic!("{changed:?}") };
    assert!(
        warning.starts_with("packet memory to p1 is 16 MB, and these lines can fill 1034 MB"),
        "{warning}"
    );
    assert_eq!(
        client.set(Some("p1"), &line(&[("delay", "1ms")])).expect("it can be").warnings.len(),
        1,
        "64 MB wait"
    );
    assert_eq!(
        client.set(Some("p0"), &line(&[("seed", "2")])).expect("it can be").warnings,
        [""; 0]
    );
}

#[test]
fn invalid_requests_are_refused() {
    let test = test("wan");
    let mut raw = test.raw();
    for (line, expected) in [
        ("what?\n", "a request is one JSON object on a line"),
        ("[]\n", "a request is one JSON object on a line"),
        ("{\"request\":\"report\"}\n", "the request has version null, this box has version 1"),
        ("{\"version\":2,\"request\":\"report\"}\n", "the request has version 2"),
        (
            "{\"version\":1,\"request\":\"fly\"}\n",
            "unknown variant `fly`, expected one of `report`",
        ),
        ("{\"version\":1,\"request\":\"report\",\"of\":\"p0\"}\n", "unknown field `of`"),
        (
            "{\"version\":1,\"request\":\"set\",\"line\":{\"latency\":\"1ms\"}}\n",
            "unknown field `latency`",
        ),
    ] {
        let answer: serde_json::Value =
            serde_json::from_str(&request_raw(&mut raw, line)).expect("JSON");
        let error = answer["error"].as_str().expect("an error");
        assert!(error.starts_with(expected) && answer["version"] == 1, "{error} for {line}");
    }
    // Two requests that arrive together are answered in order.
    let twice = format!("{0}{0}", str::from_utf8(&Request::Settings {}.line()).expect("text"));
    let (one, two) = (request_raw(&mut raw, &twice), request_raw(&mut raw, ""));
    assert!(one == two && one.contains("\"answer\""), "{one}");
}

#[test]
fn stalled_clients_do_not_block_others() {
    let test = test("wan");
    let mut long = test.raw();
    // The server may close the connection before all bytes are written.
    let _ = long.get_mut().write_all(&vec![b'x'; 2 * MAX_REQUEST_BYTES]);
    let mut answer = String::new();
    let _ = long.read_to_string(&mut answer); // then the connection is over
    assert!(answer.contains("a request of more than 131072 bytes"), "{answer}");
    // Some clients do not read their answers, and one client begins a request. They are as many as
    // the limit, and yet the next client is served.
    let mut stalled: Vec<_> = (0..MAX_CONNECTIONS).map(|_| test.raw()).collect();
    let asks = Request::Settings {}.line().repeat(2_000);
    for raw in &mut stalled {
        raw.get_mut().set_nonblocking(true).expect("a socket");
        let _ = raw.get_mut().write(&asks); // as much as fits
    }
    stalled[0].get_mut().write_all(b"{").ok();
    let mut client = test.dir.connect(Some("wan")).expect("it runs");
    assert_eq!(client.settings().expect("it answers").name, "wan");
    assert_eq!(client.report().expect("it answers").lines.len(), 2);
}

#[test]
fn the_directory_must_be_private() {
    let test = test("wan");
    let folder = fs::metadata(test.dir.path()).expect("it is there");
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    fs::set_permissions(test.dir.path(), fs::Permissions::from_mode(0o750)).expect("ours");
    for error in [
        test.dir.connect(Some("wan")).expect_err("others may enter"),
        test.dir.list().expect_err("others may enter"),
        Server::start(&test.dir, "lan", test.engine.handle().clone())
            .expect_err("others may enter"),
    ] {
        assert!(matches!(&error, ControlError::NotPrivate { .. }), "{error}");
        assert!(error.to_string().contains("is open to others"), "{error}");
    }
}

#[test]
fn names_are_unique_and_stale_sockets_are_replaced() {
    let test = test("wan");
    let again = Server::start(&test.dir, "wan", test.engine.handle().clone()).expect_err("it runs");
    let expected = format!("a box called wan runs already (process {})", std::process::id());
    assert!(again.to_string().starts_with(&expected), "{again}");
    for name in ["", "Wan", "a/b", "..", "a.b.c", "x".repeat(33).as_str()] {
        let error = Server::start(&test.dir, name, test.engine.handle().clone()).expect_err(name);
        assert!(matches!(error, ControlError::Name(_)), "{error}");
        assert!(matches!(test.dir.connect(Some(name)), Err(ControlError::Name(_))), "{name}");
    }
    // A killed process leaves a socket on which no process listens.
    let link = test.folder.path().join("l");
    std::os::unix::fs::symlink(test.dir.path(), &link).expect("a link");
    drop(UnixListener::bind(link.join("dead.sock")).expect("a socket"));
    assert_eq!(test.dir.list().expect("it can be read").len(), 1, "only running boxes are listed");
    let dead = test.dir.connect(Some("dead")).expect_err("no process listens");
    assert!(dead.to_string().ends_with("those that do: wan"), "{dead}");
    let next = Server::start(&test.dir, "dead", test.engine.handle().clone())
        .expect("it replaces the stale socket");
    assert_eq!(test.dir.list().expect("it can be read").len(), 2);
    drop(next);
    assert!(!link.join("dead.sock").exists(), "the server removes its own socket");
}

#[test]
fn a_box_of_a_lab_is_found_by_its_short_name() {
    let test = test("one.wan");
    assert_eq!(test.dir.connect(Some("wan")).expect("the only wan").name(), "one.wan");
    let other =
        Server::start(&test.dir, "two.wan", test.engine.handle().clone()).expect("another name");
    let error = test.dir.connect(Some("wan")).expect_err("two").to_string();
    assert_eq!(error, "several boxes run: name one of one.wan, two.wan");
    assert_eq!(test.dir.connect(None).expect_err("two").to_string(), error);
    assert_eq!(test.dir.connect(Some("two.wan")).expect("it runs").name(), "two.wan");
    drop((other, test.server));
    let error = test.dir.connect(None).expect_err("none").to_string();
    assert!(error.starts_with("no box runs here"), "{error}");
}

#[test]
fn stop_waits_until_the_box_has_ended() {
    let Test { server, engine, far_ends, dir, folder } = test("wan");
    assert!(!server.stop_requested());
    let mut before = dir.connect(Some("wan")).expect("it runs");
    let client = dir.connect(Some("wan")).expect("it runs");
    let stopper = std::thread::spawn(move || client.stop());
    let until = Instant::now() + PATIENCE;
    while !server.stop_requested() {
        assert!(Instant::now() < until, "the server got no request to stop");
        std::thread::yield_now();
    }
    assert!(!stopper.is_finished(), "it has not ended yet");
    engine.stop().expect("it ran");
    assert!(
        matches!(before.report(), Err(ControlError::Lost { .. })),
        "it has ended, if not for all yet"
    );
    drop(server);
    stopper.join().expect("no panic").expect("it has ended");
    assert!(matches!(before.report(), Err(ControlError::Lost { .. })));
    drop((far_ends, folder));
}

proptest! {
    /// The text of a line's settings parses to the same settings.
    #[test]
    fn settings_round_trip_as_text(
        delay in 0u64..=500_000_000,
        rate in 1_000u64..=1_000_000_000_000,
        buffer in 0u64..=8 << 30,
        share in 0f64..=1.0,
        percent in 0u32..=1000,
        overhead in 0u16..=1000,
        seed: u64,
        burst in 1u32..,
        pick in 0usize..4,
    ) {
        let mut settings = LineSettings::default();
        let percent = format!("{}%", f64::from(percent) / 10.0);
        let share = sprat_units::percent(share);
        let loss = match pick {
            0 => "none".to_owned(),
            1 => share.clone(),
            2 => format!("bursts:{percent},{share},100%,0"),
            _ => format!("list:{seed},1,{burst}").replace(":0,", ":9,"),
        };
        for (key, value) in [
            ("delay", format!("{delay}ns")),
            ("jitter", format!("{}us", delay / 1_000)),
            ("rate", format!("{rate}b/s")),
            ("flow-rate", if pick == 0 { "none".to_owned() } else { format!("{rate}b/s") }),
            ("buffer", buffer.to_string()),
            ("overhead", overhead.to_string()),
            ("seed", seed.to_string()),
            ("loss", loss),
            ("duplicate", percent.clone()),
            ("corrupt", share),
            ("burst", burst.to_string()),
            ("queue", ["drop-tail", "harmonize"][pick % 2].to_owned()),
            ("timing", ["store-and-forward", "cut-through"][pick / 2].to_owned()),
            ("reorder", format!("{percent}:{}ns", delay.max(1))),
        ] {
            set(&mut settings, key, &value).expect("within limits");
        }
        let words = LineWords::of(&settings);
        prop_assert_eq!(words.given().count(), 14, "every setting is in the text");
        let mut again = LineSettings::default();
        words.apply(&mut again).expect("a line accepts the text of its own settings");
        prop_assert_eq!(again, settings);
        if pick == 0 {
            prop_assert_eq!(words.duplicate, Some(Word(percent)), "people write this form");
        }
    }

    /// A request is decoded to what was encoded, and no line causes a panic.
    #[test]
    fn requests_round_trip_and_any_bytes_are_safe(
        port in prop::option::of(".{0,20}"),
        text in ".{0,60}",
        bytes: Vec<u8>,
    ) {
        let line = Box::new(LineWords { delay: Some(Word(text.clone())), ..LineWords::default() });
        let rule = RuleWords { expression: text, from: port.clone(), action: "count".to_owned() };
        let rules = vec![rule.clone(); bytes.len() % 4];
        for request in [
            Request::Report {},
            Request::Settings {},
            Request::Set { port, line },
            Request::Rules {},
            Request::Stop {},
            Request::AddRule { rule, at: None },
            Request::RemoveRule { number: bytes.len() },
            Request::ReplaceRules { rules },
        ] {
            let line = request.line();
            prop_assert!(line.iter().position(|byte| *byte == b'\n') == Some(line.len() - 1));
            prop_assert_eq!(Request::parse(&line).expect("its own"), request);
        }
        prop_assert!(Request::parse(&bytes).is_err());
    }
}
