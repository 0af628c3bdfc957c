//! The window that follows the rate, in the kernel of this machine.

use sprat_pace::path::{self, Buffer, Path};
use sprat_pace::window::btf::Types;
use sprat_pace::window::{KNOCK_BIT, Window, WindowError};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Returns the window. If this machine cannot have one, records the reason in the list of skipped
/// tests.
fn window() -> Option<Window> {
    match Window::open() {
        Ok(window) => Some(window),
        Err(error @ (WindowError::NoTypes(_) | WindowError::UnknownTypes(_))) => {
            skip(&error.to_string())
        }
        Err(WindowError::Refused(error, _))
            if error.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            skip(&format!("a congestion control of ours: {error}; needs CAP_BPF and CAP_NET_ADMIN"))
        }
        Err(error) => panic!("{error}"),
    }
}

fn skip<T>(why: &str) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("window").to_owned();
    sprat_testing::skip(&format!("{test}: {why}"));
    None
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (to, listener.accept().unwrap().0)
}

/// Reads until the end of the stream, and returns the number of bytes.
fn sink(mut from: TcpStream) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut all = 0;
        loop {
            match from.read(&mut buffer).unwrap() {
                0 => return all,
                count => all += count,
            }
        }
    })
}

#[test]
fn a_connection_keeps_the_rate_it_is_given() {
    let Some(window) = window() else { return };
    let (mut to, from) = pair();
    path::limit_rate(&to, Some(20_000_000)).unwrap();
    window.attach(&to).unwrap();
    assert!(path::congestion_control(&to).unwrap().starts_with("sprat_"));
    let reader = sink(from);
    let start = Instant::now();
    let content = vec![7; 1 << 20];
    for _ in 0..4 {
        to.write_all(&content).unwrap();
    }
    let told = Path::of(&to).unwrap();
    assert_eq!(told.pacing_rate, 20_000_000);
    drop(to);
    assert_eq!(reader.join().unwrap(), 4 << 20);
    // The transfer must not be faster than the rate. How much slower it is depends on the machine.
    assert!(start.elapsed() > Duration::from_millis(180), "{:?}", start.elapsed());
}

#[test]
fn another_rate_shows_at_once_and_the_window_outlives_its_owner() {
    let Some(window) = window() else { return };
    let (mut to, from) = pair();
    path::limit_rate(&to, Some(1_000_000)).unwrap();
    window.attach(&to).unwrap();
    drop(window);
    let reader = sink(from);
    to.write_all(&[1; 1 << 17]).unwrap();
    path::limit_rate(&to, Some(500_000_000)).unwrap();
    to.write_all(&vec![1; 8 << 20]).unwrap();
    let told = Path::of(&to).unwrap();
    assert_eq!(told.pacing_rate, 500_000_000);
    drop(to);
    assert_eq!(reader.join().unwrap(), (8 << 20) + (1 << 17));
}

#[test]
fn a_knock_has_the_window_of_the_rate_around_it() {
    let Some(window) = window() else { return };
    let (mut to, from) = pair();
    path::limit_rate(&to, Some(1_000_000)).unwrap();
    window.attach(&to).unwrap();
    let reader = sink(from);
    // Returns segments a second. A fifth of 100 GB/s is many segments, even in a loopback's round
    // trip of 20 us. That matters because windows are whole segments.
    let mut window = |rate: u64| {
        path::limit_rate(&to, Some(rate)).unwrap();
        to.write_all(&vec![1; 4 << 20]).unwrap();
        while Path::of(&to).unwrap().unacked > 0 {
            std::thread::yield_now();
        }
        let path = Path::of(&to).unwrap();
        f64::from(path.cwnd - 32) / path.rtt.as_secs_f64()
    };
    // The window was computed with the round-trip time before the last acknowledgement, which is
    // mostly close to the reported one.
    let mut ratios: Vec<_> =
        (0..15).map(|_| window(100_000_000_000) / window(100_000_000_000 | KNOCK_BIT)).collect();
    ratios.sort_by(f64::total_cmp);
    assert!((3.0..8.0).contains(&ratios[7]), "{ratios:?}");
    drop(to);
    reader.join().unwrap();
}

#[test]
fn what_the_kernel_knows_adds_up() {
    let (mut to, from) = pair();
    let reader = sink(from.try_clone().unwrap());
    to.write_all(&vec![3; 1 << 20]).unwrap();
    while Path::of(&to).unwrap().acked < 1 << 20 {
        std::thread::yield_now();
    }
    let (sender, receiver) = (Path::of(&to).unwrap(), Path::of(&from).unwrap());
    assert!(sender.sent >= 1 << 20 && sender.not_sent == 0 && sender.unacked == 0, "{sender:?}");
    assert_eq!(receiver.received, 1 << 20);
    assert!(
        sender.delivered > 0 && sender.min_rtt > Duration::ZERO && sender.rtt >= sender.min_rtt,
        "{sender:?}"
    );
    drop(to);
    reader.join().unwrap();
}

#[test]
fn buffers_grow_as_far_as_they_may() {
    let (mut to, from) = pair();
    let got = path::enlarge(&to, Buffer::Send, 64 << 20).unwrap();
    assert!(got > 0 && got <= 64 << 20, "{got}");
    path::prepare_sender(&to, path::MAX_BUFFER, path::MAX_UNSENT).unwrap();
    // The peer does not read. The buffer of 512 MB accepts what the peer's buffer holds, and a
    // little more than may wait for its first transmission.
    to.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let content = vec![1; 1 << 20];
    let mut written = 0;
    while let Ok(count) = to.write(&content) {
        written += count;
    }
    let told = Path::of(&to).unwrap();
    assert!(
        told.not_sent <= path::MAX_UNSENT + (2 << 20) && written < 128 << 20,
        "{written}: {told:?}"
    );
    let most = path::enlarge(&from, Buffer::Receive, usize::MAX).unwrap();
    assert!(most <= path::MAX_BUFFER, "{most}");
}

#[test]
fn types_of_another_form_are_refused() {
    assert!(Types::parse(&[]).is_none());
    assert!(Types::parse(&[0x9f, 0xeb, 1, 0, 0xff, 0xff, 0xff, 0xff]).is_none());
    let Ok(mut bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        return skip("the kernel does not export its types").unwrap_or(());
    };
    let types = Types::parse(&bytes).unwrap();
    let sock = types.structure("sock").unwrap();
    assert!(
        types.member(sock, "sk_pacing_rate").is_some()
            && types.member(sock, "no such member").is_none()
    );
    drop(types);
    for at in (24..bytes.len()).step_by(bytes.len() / 50) {
        bytes[at] ^= 0xff;
        if let Some(types) = Types::parse(&bytes) {
            let _ = types
                .structure("tcp_sock")
                .and_then(|sock| types.offset(sock, &["inet_conn", "icsk_inet", "sk"]));
        }
    }
    bytes.truncate(bytes.len() / 2);
    assert!(Types::parse(&bytes).is_none());
}
