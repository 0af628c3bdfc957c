//! Tests several hosts of one file: equal hosts, a host that is killed, a slow host, a host that
//! has another file, and invalid hosts.

use crate::support;
use sprat_flow::copy::{Error, Event, Fetch, Options, Outcome, Progress, Sums};
use sprat_flow::share::{self, Pace, Share};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Fault, Server, content, names, options};

const MIB: usize = 1 << 20;

/// One of our servers, with a copy of the file.
struct Host {
    /// Declared before the directory, so that the server ends before its file is removed.
    share: Share,
    directory: tempfile::TempDir,
    /// Status and bytes sent of each answer.
    answers: Arc<Mutex<Vec<(u16, u64)>>>,
}

impl Host {
    fn new(content: &[u8]) -> Self {
        Self::at(content, "127.0.0.1:0", Pace::Auto)
    }

    fn at(content: &[u8], listen: &str, pace: Pace) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), content).unwrap();
        let answers = Arc::new(Mutex::new(Vec::new()));
        let seen = answers.clone();
        let mut options =
            share::Options::new(directory.path().to_owned(), vec![listen.parse().unwrap()]);
        options.pace = pace;
        options.observer = Some(Arc::new(move |event: &share::Event| {
            seen.lock().unwrap().push((event.status, event.bytes))
        }));
        Self { share: Share::start(options).unwrap(), directory, answers }
    }

    fn name(&self) -> String {
        self.share.addresses()[0].to_string()
    }

    fn url(&self) -> String {
        format!("sprat://{}/file", self.name())
    }

    fn sent(&self) -> u64 {
        self.answers.lock().unwrap().iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Copies from the first host with the help of the others. Calls `at` with the progress.
fn copy(
    sources: &[String],
    target: &Path,
    options: Options,
    at: &mut dyn FnMut(&Progress),
) -> (Result<Outcome, Error>, Vec<Event>) {
    let mut events = Vec::new();
    let outcome = Fetch::new(&sources[0], target, options).and_then(|mut copy| {
        sources[1..].iter().try_for_each(|other| copy.add_host(other))?;
        copy.run(&mut |event| match event {
            Event::Progress(progress) => at(progress),
            other => events.push(other.clone()),
        })
    });
    (outcome, events)
}

fn without(events: &[Event]) -> Vec<&str> {
    let left = events.iter().filter_map(|event| match event {
        Event::HostDropped { source, .. } => Some(&source[..]),
        _ => None,
    });
    left.collect()
}

fn bytes_from(outcome: &Outcome, host: &str) -> u64 {
    let of = outcome.sources.iter().filter(|served| served.source.contains(host));
    of.map(|served| served.bytes).sum()
}

#[test]
fn hosts_that_have_the_same_file_share_the_work() {
    let content = content(40 * MIB + 17);
    let hosts = [Host::new(&content), Host::new(&content), Host::new(&content)];
    // Hosts given by name and by address, and a host that is not our server.
    let plain = Server::start(content.clone(), false);
    let sources = [
        hosts[0].url(),
        hosts[1].name(),
        hosts[2].url().replace("sprat://", "http://"),
        plain.url(),
    ];
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    let limited = Options { limit: Some(60_000_000), ..options() };
    let (outcome, events) = copy(&sources, &target, limited, &mut |_| {});
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}: {events:?}"));
    assert!(fs::read(&target).unwrap() == content);
    assert_eq!(outcome.blake3.unwrap(), *blake3::hash(&content).as_bytes());
    assert!(outcome.verified && without(&events).is_empty(), "{events:?}");
    let of = [&hosts[0].name(), &hosts[1].name(), &hosts[2].name(), &plain.address.to_string()];
    for host in of {
        assert!(bytes_from(&outcome, host) > 0, "{host} sent a part: {:?}", outcome.sources);
    }
    assert_eq!(
        outcome.sources.iter().map(|served| served.bytes).sum::<u64>(),
        content.len() as u64
    );
    assert_eq!(names(directory.path()), ["file"]);
}

#[test]
fn one_that_is_killed_is_done_without() {
    for killed in [0, 1] {
        let content = content(48 * MIB + 5);
        let mut hosts =
            [Some(Host::new(&content)), Some(Host::new(&content)), Some(Host::new(&content))];
        let sources: Vec<_> = hosts.iter().flatten().map(Host::url).collect();
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        let limited = Options { limit: Some(60_000_000), retries: 5, ..options() };
        let (outcome, events) = copy(&sources, &target, limited, &mut |progress| {
            if progress.done >= 12 * MIB as u64 {
                drop(hosts[killed].take());
            }
        });
        let outcome = outcome.unwrap_or_else(|error| panic!("{error}: {events:?}"));
        assert!(fs::read(&target).unwrap() == content);
        assert!(outcome.verified && hosts[killed].is_none());
        if killed == 0 {
            // Another host defines the file from then on. The fetch asked it whether it has the
            // groups received so far.
            assert!(
                without(&events).contains(&&sources[0].replace("sprat", "http")[..]),
                "{events:?}"
            );
            assert!(
                events.iter().any(
                    |event| matches!(event, Event::Note(text) if text.contains("its hashes match"))
                ),
                "{events:?}"
            );
            assert_eq!(outcome.progress.received, content.len() as u64, "nothing was thrown away");
        }
    }
}

#[test]
fn one_that_has_another_file_is_found_out() {
    let content = content(30 * MIB + 5);
    let mut other = content.clone();
    other.iter_mut().for_each(|byte| *byte ^= 1);
    let longer = [&content[..], b"x"].concat();
    for (wrong, verified) in [(&other, true), (&other, false), (&longer, true)] {
        let first = Host::new(&content);
        let second = Server::start(wrong.clone(), verified);
        let sources = [first.url(), second.url()];
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        let limited = Options { limit: Some(60_000_000), ..options() };
        let (outcome, events) = copy(&sources, &target, limited, &mut |_| {});
        let outcome = outcome.unwrap_or_else(|error| panic!("{error}: {events:?}"));
        assert!(fs::read(&target).unwrap() == content, "no byte of the other file");
        assert_eq!(bytes_from(&outcome, &second.address.to_string()), 0);
        assert_eq!(without(&events), [second.url()], "{events:?}");
    }
}

#[test]
fn one_that_has_another_file_does_not_take_over() {
    // The file is so long that runs are left when the first host ends, whatever the kernels have
    // buffered.
    let content = content(64 * MIB + 5);
    let mut other = content.clone();
    other[0] ^= 1;
    let mut first = Some(Host::new(&content));
    let second = Host::new(&other);
    let sources = [first.as_ref().unwrap().url(), second.url()];
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    let limited = Options { limit: Some(60_000_000), retries: 2, ..options() };
    // By then the only group in which the files differ has arrived from the first host.
    let (outcome, events) = copy(&sources, &target, limited, &mut |progress| {
        if progress.done >= 20 * MIB as u64 {
            drop(first.take());
        }
    });
    let left = without(&events).contains(&&second.url().replace("sprat", "http")[..]);
    assert!(outcome.is_err() && left, "{outcome:?}: {events:?}");
    assert_eq!(
        names(directory.path()),
        ["file.sprat-journal", "file.sprat-part"],
        "the partial file waits for the first host"
    );
    // A fetch from only the second host then gets its file, complete.
    let (outcome, events) = copy(&sources[1..], &target, options(), &mut |_| {});
    outcome.unwrap();
    assert!(fs::read(&target).unwrap() == other, "{events:?}");
}

#[test]
fn a_silent_host_does_not_delay_others() {
    let content = content(24 * MIB + 5);
    for slow in [0, 1] {
        let crawling = Pace::Limit(200_000);
        let pace = |number| if number == slow { crawling } else { Pace::Auto };
        let hosts = [0, 1].map(|number| Host::at(&content, "127.0.0.1:0", pace(number)));
        let sources = [hosts[0].url(), hosts[1].url()];
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        let patient = Options { patience: Duration::from_secs(60), ..options() };
        let (outcome, events) = copy(&sources, &target, patient, &mut |_| {});
        let outcome = outcome.unwrap_or_else(|error| panic!("{error}: {events:?}"));
        assert!(fs::read(&target).unwrap() == content);
        let (from_slow, from_fast) = (
            bytes_from(&outcome, &hosts[slow].name()),
            bytes_from(&outcome, &hosts[1 - slow].name()),
        );
        // The kernel's buffers hold more bytes than the slow host sends in this time.
        assert!(from_slow < from_fast, "{:?}", outcome.sources);
    }
}

#[test]
fn a_stream_that_stalls_is_helped_by_the_others() {
    for verified in [true, false] {
        let server = Server::start(content(30 * MIB + 3), verified);
        server.fault([Fault::Stall(2 * MIB + 100)]);
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        // Waiting for the stalled streams alone would take too long.
        let patient = Options { streams: 3, patience: Duration::from_secs(600), ..options() };
        let (outcome, events) = copy(&[server.url()], &target, patient, &mut |_| {});
        assert_eq!(outcome.unwrap().progress.retries, 0, "{events:?}");
        assert!(fs::read(&target).unwrap() == content(30 * MIB + 3));
        let heads = server.requests().iter().filter(|request| request.method == "HEAD").count();
        assert_eq!(heads, 1, "one HEAD checks whether the file is unchanged");
    }
}

#[test]
fn a_file_that_changes_while_a_stream_stalls_is_fetched_again() {
    let (old, mut new) = (content(30 * MIB), content(30 * MIB));
    new[5] ^= 1;
    let server = Server::start(old, true);
    server.fault([Fault::Stall(2 * MIB + 100)]);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    let patient = Options {
        streams: 2,
        patience: Duration::from_secs(600),
        limit: Some(40_000_000),
        ..options()
    };
    let state = server.state.clone();
    let (outcome, events) = copy(&[server.url()], &target, patient, &mut |progress| {
        let mut state = state.lock().unwrap();
        // The change comes after the last request for a part, so only a further request can notice
        // it.
        if progress.done == 30 * MIB as u64 && state.tag == "\"one\"" {
            state.tag = "\"two\"".to_owned();
            state.content.clone_from(&new);
        }
    });
    outcome.unwrap();
    let has = fs::read(&target).unwrap();
    let anew = events.iter().any(|event| matches!(event, Event::StartsOver { .. }));
    assert!(
        has == if anew { new } else { content(30 * MIB) },
        "the old content or the new, no mixture"
    );
}

#[test]
fn an_interrupted_copy_goes_on_from_other_hosts() {
    let content = content(24 * MIB + 9);
    let hosts = [Host::new(&content), Host::new(&content), Host::new(&content)];
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    let mut done = 0;
    for (round, sources) in [[0, 1], [2, 1], [1, 0]].into_iter().enumerate() {
        let sources = sources.map(|host| hosts[host].url());
        let mut copying = Fetch::new(
            &sources[0],
            &target,
            Options { limit: Some(30_000_000), sync_bytes: 2 << 20, ..options() },
        )
        .unwrap();
        copying.add_host(&sources[1]).unwrap();
        let cancel = copying.cancel();
        let enough = (8 * (round as u64 + 1)) << 20;
        let mut resumed = None;
        let outcome = copying.run(&mut |event| match event {
            Event::Opened { resumed: bytes, .. } => resumed = Some(*bytes),
            Event::Progress(progress) if progress.done >= enough && round < 2 => cancel.cancel(),
            _ => {}
        });
        assert!(resumed.unwrap() >= done, "{resumed:?} of {done}");
        if round < 2 {
            assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
            done = enough;
        } else {
            assert!(outcome.unwrap().progress.received <= content.len() as u64 - done);
        }
    }
    assert!(fs::read(&target).unwrap() == content);
}

#[test]
fn unchanged_groups_of_a_changed_file_are_not_fetched_again() {
    let old = content(16 * MIB);
    let host = Host::new(&old);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    let copying =
        Fetch::new(&host.url(), &target, Options { limit: Some(30_000_000), ..options() }).unwrap();
    let cancel = copying.cancel();
    let stopped = copying.run(&mut |event| {
        if matches!(event, Event::Progress(progress) if progress.done >= 8 * MIB as u64) {
            cancel.cancel();
        }
    });
    assert!(matches!(stopped, Err(Error::Cancelled)));
    let mut new = old.clone();
    new[3 * MIB + 5] ^= 1;
    fs::write(host.directory.path().join("file"), &new).unwrap();
    let before = host.sent();
    let (outcome, events) = copy(&[host.url()], &target, options(), &mut |_| {});
    outcome.unwrap();
    assert!(fs::read(&target).unwrap() == new, "{events:?}");
    assert!(
        host.sent() - before < 10 * MIB as u64,
        "{} B for the missing groups and one more",
        host.sent() - before
    );
    assert!(
        events.iter().any(
            |event| matches!(event, Event::Note(text) if text.contains("fetching the others"))
        )
    );
}

#[test]
fn hosts_without_values_need_a_sum() {
    let content = content(30 * MIB + 1);
    let (first, second) =
        (Server::start(content.clone(), false), Server::start(content.clone(), false));
    let mut other = content.clone();
    other[0] ^= 1;
    other[25 * MIB] ^= 1;
    let wrong = Server::start(other, false);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    let (outcome, events) = copy(&[first.url(), wrong.url()], &target, options(), &mut |_| {});
    assert!(fs::read(&target).unwrap() == content, "{events:?}");
    assert_eq!((outcome.unwrap().sources.len(), wrong.sent()), (1, 0));
    assert!(
        events.iter().any(|event| matches!(event, Event::Note(text) if text.contains("--sha256"))),
        "{events:?}"
    );
    let sums = Sums { blake3: Some(*blake3::hash(&content).as_bytes()), sha256: None };
    let summed = || Options { sums, force: true, limit: Some(60_000_000), ..options() };
    let (outcome, _) = copy(&[first.url(), second.url()], &target, summed(), &mut |_| {});
    let outcome = outcome.unwrap();
    assert!(
        outcome.verified && outcome.sources.iter().all(|served| served.bytes > 0),
        "{:?}",
        outcome.sources
    );
    fs::remove_file(&target).unwrap();
    let (outcome, _) = copy(&[first.url(), wrong.url()], &target, summed(), &mut |_| {});
    assert!(outcome.is_err() || fs::read(&target).unwrap() == content);
}

#[test]
fn invalid_or_repeated_hosts_are_refused() {
    let target = Path::new("/tmp/never");
    let mut copy = Fetch::new("sprat://one.example/a/file", target, options()).unwrap();
    copy.add_host("two.example").unwrap();
    copy.add_host("[::1]:80").unwrap();
    copy.add_host("http://two.example/elsewhere").unwrap();
    for wrong in [
        "",
        "two.example",
        "one.example:8040",
        "two.example/x",
        "u@two.example",
        "http://x.example/",
        "a b",
        "x:99999",
    ] {
        assert!(matches!(copy.add_host(wrong), Err(Error::Usage(_))), "{wrong}");
    }
    let more = (0..20)
        .map(|number| copy.add_host(&format!("host{number}.example")))
        .filter(Result::is_err)
        .count();
    assert!(more > 0, "the number of hosts is limited");
    let mut local = Fetch::new("/etc/hostname", target, options()).unwrap();
    assert!(matches!(local.add_host("one.example"), Err(Error::Usage(_))));
}

#[test]
fn credentials_go_only_to_the_hosts_they_are_for() {
    let content = content(20 * MIB);
    let servers = [0, 1, 2].map(|_| Server::start(content.clone(), false));
    let sum = Sums { blake3: Some(*blake3::hash(&content).as_bytes()), sha256: None };
    let secret = Options {
        token: Some("secret".to_owned()),
        sums: sum,
        limit: Some(40_000_000),
        ..options()
    };
    let sources = [servers[0].url(), servers[1].address.to_string(), servers[2].url()];
    let directory = tempfile::tempdir().unwrap();
    copy(&sources, &directory.path().join("file"), secret, &mut |_| {}).0.unwrap();
    let told = servers.each_ref().map(|server| {
        let requests = server.requests();
        assert!(!requests.is_empty());
        requests.iter().all(|request| request.fields.contains_key("authorization"))
    });
    assert_eq!(told, [true, true, false]);
}

#[test]
fn a_first_host_that_is_not_there_is_passed_over() {
    let content = content(5 * MIB);
    let host = Host::new(&content);
    let empty = Host::new(b"");
    fs::remove_file(empty.directory.path().join("file")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let nobody = "sprat://127.0.0.1:1/file".to_owned();
    for (number, first) in [nobody.clone(), empty.url()].into_iter().enumerate() {
        let target = directory.path().join(number.to_string());
        let (outcome, events) = copy(&[first, host.url()], &target, options(), &mut |_| {});
        assert_eq!(outcome.unwrap().length, content.len() as u64);
        assert_eq!(without(&events).len(), 1, "{events:?}");
    }
    let (outcome, _) =
        copy(&[nobody, empty.url()], &directory.path().join("x"), options(), &mut |_| {});
    assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
}
