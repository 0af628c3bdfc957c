//! DPDK's environment: one a process, started by whoever opens the first device.

use sprat_host::memory;
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::thread;

use super::ffi;

/// Memory for frames, MiB: what two devices with jumbo frames take, and room for rings.
const MEMORY_MIB: u64 = 256;

/// Arguments for DPDK besides ours, for experts: `--iova-mode=pa`, say.
const EXTRA: &str = "SPRAT_EAL";

/// Which devices DPDK looks for by itself; settled when it starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scope {
    /// None: only virtual ones are made, by name.
    Virtual,
    /// Those on the buses that a driver for user space has been bound to.
    Buses,
}

static STARTED: Mutex<Option<Scope>> = Mutex::new(None);

/// Starts DPDK unless that is done. `devices`: those about to be opened; none for the first there
/// is.
///
/// # Errors
/// What DPDK says; or that it has been started without buses, which it does not add later.
pub(in crate::bypass) fn start(devices: &[String]) -> io::Result<()> {
    let named = !devices.is_empty();
    let scope = if named && devices.iter().all(|device| device.starts_with("net_")) {
        Scope::Virtual
    } else {
        Scope::Buses
    };
    let mut started = STARTED.lock().expect("nobody panics while starting");
    match *started {
        Some(before) if before == scope || scope == Scope::Virtual => return Ok(()),
        Some(_) => {
            let reason =
                "DPDK was started for virtual devices alone: open the device on a bus first";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        None => {}
    }
    ffi::load()?;
    let arguments = arguments(scope, devices)?;
    // DPDK pins the thread that starts it: let that be one that nobody needs.
    let result =
        thread::spawn(move || init(arguments)).join().expect("starting DPDK does not panic");
    result.map_err(|code| error("start DPDK", code))?;
    *started = Some(scope);
    Ok(())
}

fn arguments(scope: Scope, devices: &[String]) -> io::Result<Vec<CString>> {
    let cpus = rustix::thread::sched_getaffinity(None)?;
    let cpus: Vec<_> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&cpu| cpus.is_set(cpu))
        .map(|cpu| cpu.to_string())
        .collect();
    // One "lcore", on any of our cores: DPDK's own threads then stay off none of them in
    // particular.
    let mut arguments = vec!["sprat".to_owned(), format!("--lcores=0@({})", cpus.join(","))];
    arguments.push(format!("-m{MEMORY_MIB}"));
    arguments.extend(["--no-telemetry", "--log-level=*:warning"].map(str::to_owned));
    let memory: &[_] = if free_huge_pages_mib() >= MEMORY_MIB {
        &["--in-memory", "--single-file-segments"] // the latter for devices that share frames between processes
    } else {
        &["--no-huge", "--no-shconf"]
    };
    arguments.extend(memory.iter().map(|&argument| argument.to_owned()));
    match scope {
        Scope::Virtual => arguments.push("--no-pci".to_owned()),
        // Others that are bound stay free for other programs.
        Scope::Buses => arguments.extend(
            devices
                .iter()
                .filter(|device| !device.starts_with("net_"))
                .map(|device| format!("-a{device}")),
        ),
    }
    if let Ok(extra) = std::env::var(EXTRA) {
        arguments.extend(extra.split_whitespace().map(str::to_owned));
    }
    arguments.into_iter().map(|argument| CString::new(argument).map_err(io::Error::from)).collect()
}

fn init(arguments: Vec<CString>) -> Result<(), c_int> {
    // DPDK keeps pointers into its arguments.
    let arguments: &'static mut [CString] = arguments.leak();
    let mut pointers: Vec<*mut c_char> =
        arguments.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
    let count = c_int::try_from(pointers.len()).expect("few arguments");
    pointers.push(std::ptr::null_mut());
    let pointers: &'static mut [*mut c_char] = pointers.leak();
    // SAFETY: `count` strings, each ended by a zero, and a null behind them, all of which live for
    // ever. DPDK is not started yet (the caller holds the lock that says so), and this thread
    // is nobody else's.
    match unsafe { ffi::sprat_dpdk_init(count, pointers.as_mut_ptr()) } {
        0 => Ok(()),
        code => Err(code),
    }
}

/// Free huge pages of the default size, MiB.
fn free_huge_pages_mib() -> u64 {
    (memory("HugePages_Free").unwrap_or(0) * memory("Hugepagesize").unwrap_or(0)) >> 20
}

/// An error of DPDK, with what it logged last.
pub(super) fn error(what: &str, code: c_int) -> io::Error {
    let mut text: [c_char; 2048] = [0; 2048];
    // SAFETY: as many bytes as it says; the C side ends what it writes by a zero.
    unsafe { ffi::sprat_dpdk_take_log(text.as_mut_ptr(), 2048) };
    let text: String = text
        .iter()
        .map(|&byte| char::from(byte.to_ne_bytes()[0]))
        .take_while(|&c| c != '\0')
        .collect();
    let system = io::Error::from_raw_os_error(-code);
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = match lines.as_slice() {
        [] => String::new(),
        lines => format!(" (DPDK says: {})", lines[lines.len().saturating_sub(3)..].join("; ")),
    };
    io::Error::new(system.kind(), format!("cannot {what}: {system}{said}"))
}

/// This thread's place in DPDK: with it, frames are taken and given back without a lock. A thread
/// may have several.
pub(in crate::bypass) struct Seat {
    /// To be given up on the thread that took it.
    _thread: PhantomData<*const ()>,
}

thread_local! {
    static SEATS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Seat {
    /// Takes a place for the calling thread.
    ///
    /// # Errors
    /// When DPDK has none left.
    pub(in crate::bypass) fn take() -> io::Result<Self> {
        if SEATS.get() == 0 {
            // SAFETY: DPDK has been started, and this thread has no place yet.
            let code = unsafe { ffi::sprat_dpdk_thread_enter() };
            if code < 0 {
                return Err(error("give the thread a place in DPDK", code));
            }
        }
        SEATS.set(SEATS.get() + 1);
        Ok(Self { _thread: PhantomData })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        SEATS.set(SEATS.get() - 1);
        if SEATS.get() == 0 {
            // SAFETY: this very thread, for the type cannot leave it, took the place.
            unsafe { ffi::sprat_dpdk_thread_leave() };
        }
    }
}
