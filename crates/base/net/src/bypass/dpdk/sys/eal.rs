//! DPDK's environment abstraction layer, started once per process when the first device is opened.

use sprat_host::memory;
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::thread;

use super::ffi;

/// Memory for frames, in MiB: enough for two devices with jumbo frames and their rings.
const MEMORY_MIB: u64 = 256;

/// Environment variable with additional arguments for DPDK, for experts: for example
/// `--iova-mode=pa`.
const EXTRA: &str = "SPRAT_EAL";

/// Which devices DPDK probes when it starts; this cannot change later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scope {
    /// No devices: only virtual devices are created, by name.
    Virtual,
    /// The devices on buses that are bound to a user-space driver.
    Buses,
}

static STARTED: Mutex<Option<Scope>> = Mutex::new(None);

/// Starts DPDK if it is not running yet. `devices` are the names of the devices to be opened; empty
/// to open the first device found.
///
/// # Errors
/// Errors of DPDK. Also if DPDK needs to probe buses but was started without, because it cannot add
/// them later.
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
    // DPDK pins the thread that starts it to a core, so a thread starts it that does nothing else.
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
    // One "lcore" on any of our cores, so that DPDK's own threads may run on all of them.
    let mut arguments = vec!["sprat".to_owned(), format!("--lcores=0@({})", cpus.join(","))];
    arguments.push(format!("-m{MEMORY_MIB}"));
    arguments.extend(["--no-telemetry", "--log-level=*:warning"].map(str::to_owned));
    let memory: &[_] = if free_huge_pages_mib() >= MEMORY_MIB {
        // Devices that share frames between processes need the second argument.
        &["--in-memory", "--single-file-segments"]
    } else {
        &["--no-huge", "--no-shconf"]
    };
    arguments.extend(memory.iter().map(|&argument| argument.to_owned()));
    match scope {
        Scope::Virtual => arguments.push("--no-pci".to_owned()),
        // Devices that are not named stay free for other programs.
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
    // DPDK keeps pointers to its arguments.
    let arguments: &'static mut [CString] = arguments.leak();
    let mut pointers: Vec<*mut c_char> =
        arguments.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
    let count = c_int::try_from(pointers.len()).expect("few arguments");
    pointers.push(std::ptr::null_mut());
    let pointers: &'static mut [*mut c_char] = pointers.leak();
    // SAFETY: `count` strings, each ended by a zero, and a null after them, all of which live for
    // ever. DPDK is not started yet (the caller holds the lock that guards that), and this thread
    // is used for nothing else.
    match unsafe { ffi::sprat_dpdk_init(count, pointers.as_mut_ptr()) } {
        0 => Ok(()),
        code => Err(code),
    }
}

/// Free huge pages of the default size, in MiB.
fn free_huge_pages_mib() -> u64 {
    (memory("HugePages_Free").unwrap_or(0) * memory("Hugepagesize").unwrap_or(0)) >> 20
}

/// Composes an error of DPDK from its code and the last lines that DPDK logged.
pub(super) fn error(task: &str, code: c_int) -> io::Error {
    let mut text: [c_char; 2048] = [0; 2048];
    // SAFETY: the buffer has as many bytes as stated; the C side ends what it writes with a zero.
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
    io::Error::new(system.kind(), format!("cannot {task}: {system}{said}"))
}

/// The calling thread's registration with DPDK, with which the thread takes and returns frames
/// without a lock. A thread may have several.
pub(in crate::bypass) struct ThreadRegistration {
    /// Makes the type `!Send`, because it must be dropped on the thread that registered.
    _thread: PhantomData<*const ()>,
}

thread_local! {
    static REGISTRATIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl ThreadRegistration {
    /// Registers the calling thread.
    ///
    /// # Errors
    /// DPDK can register no more threads.
    pub(in crate::bypass) fn register() -> io::Result<Self> {
        if REGISTRATIONS.get() == 0 {
            // SAFETY: DPDK has been started, and this thread is not registered yet.
            let code = unsafe { ffi::sprat_dpdk_thread_enter() };
            if code < 0 {
                return Err(error("register the thread with DPDK", code));
            }
        }
        REGISTRATIONS.set(REGISTRATIONS.get() + 1);
        Ok(Self { _thread: PhantomData })
    }
}

impl Drop for ThreadRegistration {
    fn drop(&mut self) {
        REGISTRATIONS.set(REGISTRATIONS.get() - 1);
        if REGISTRATIONS.get() == 0 {
            // SAFETY: this thread registered, as the type cannot leave it.
            unsafe { ffi::sprat_dpdk_thread_leave() };
        }
    }
}
