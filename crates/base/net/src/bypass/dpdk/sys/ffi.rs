//! The functions that `shim/dpdk.h` declares and documents. The shared library built from the shim
//! is embedded in the binary.

use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;

use libloading::Library;
use rustix::fs::{MemfdFlags, memfd_create};

/// `struct sprat_frame`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawFrame {
    pub(super) mbuf: *mut c_void,
    pub(super) data: *mut u8,
    pub(super) len: u32,
    pub(super) flags: u32,
}

pub(super) const CHECKED: u32 = 1;
pub(super) const CHECKSUM: u32 = 2;
pub(super) const IPV6: u32 = 4;

/// `struct sprat_device`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Description {
    pub(super) driver: [u8; 32],
    pub(super) mac: [u8; 6],
    pub(super) max_mtu: u16,
    pub(super) can: u32,
    pub(super) numa: i32,
    pub(super) max_queues: u16,
}

pub(super) const CAN_CHECK_RECEIVED: u32 = 1;
pub(super) const CAN_CHECK_SENT: u32 = 2;
pub(super) const CAN_FILTER_VLAN: u32 = 4;
pub(super) const CAN_RING: u32 = 8;

/// `struct sprat_setup`.
#[repr(C)]
pub(super) struct RawSetup {
    pub(super) pools: *const *mut c_void,
    pub(super) mac: *const u8,
    pub(super) mtu: u16,
    pub(super) descriptors: u16,
    pub(super) queues: u16,
    pub(super) using: u32,
}

/// `struct sprat_counters`.
#[derive(Default)]
#[repr(C)]
pub(super) struct RawCounters {
    pub(super) missed: u64,
    pub(super) errors_in: u64,
    pub(super) errors_out: u64,
    pub(super) no_buffer: u64,
}

/// The loaded functions.
static SHIM: OnceLock<Shim> = OnceLock::new();

/// Declares functions, each of which is looked up once by its name.
macro_rules! shim {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        struct Shim {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Shim {
            fn of(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $(
                        // SAFETY: the type is the one that the header declares for the name.
                        $name: *unsafe { library.get(stringify!($name))? },
                    )*
                })
            }
        }

        $(
            #[inline]
            pub(super) unsafe fn $name($($argument: $type),*) $(-> $result)? {
                let shim = SHIM.get().expect("DPDK is loaded before anything is asked of it");
                // SAFETY: the caller upholds the function's contract.
                unsafe { (shim.$name)($($argument),*) }
            }
        )*
    };
}

shim! {
    fn sprat_dpdk_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn sprat_dpdk_take_log(text: *mut c_char, size: u32);
    fn sprat_dpdk_thread_enter() -> c_int;
    fn sprat_dpdk_thread_leave();
    fn sprat_dpdk_pool(
        name: *const c_char,
        frames: u32,
        room: u32,
        numa: i32,
        pool: *mut *mut c_void,
    ) -> c_int;
    fn sprat_dpdk_pool_free(pool: *mut c_void);
    fn sprat_dpdk_pool_used(pool: *mut c_void) -> u32;
    fn sprat_dpdk_attach(arguments: *const c_char, name: *const c_char, port: *mut u16) -> c_int;
    fn sprat_dpdk_next(from: u16, port: *mut u16) -> c_int;
    fn sprat_dpdk_describe(port: u16, device: *mut Description) -> c_int;
    fn sprat_dpdk_setup(port: u16, setup: *const RawSetup) -> c_int;
    fn sprat_dpdk_start(port: u16) -> c_int;
    fn sprat_dpdk_hear_group(port: u16, group: *const u8) -> c_int;
    fn sprat_dpdk_hear_vlan(port: u16, vlan: u16) -> c_int;
    fn sprat_dpdk_hear_all(port: u16) -> c_int;
    fn sprat_dpdk_close(port: u16);
    fn sprat_dpdk_link(port: u16) -> c_int;
    fn sprat_dpdk_counters(port: u16, counters: *mut RawCounters) -> c_int;
    fn sprat_dpdk_bell(port: u16, queue: u16) -> c_int;
    fn sprat_dpdk_arm(port: u16, queue: u16, armed: c_int) -> c_int;
    fn sprat_dpdk_steer(port: u16, queue: u16, udp_port: u16, ipv6: c_int) -> c_int;
    fn sprat_dpdk_receive(port: u16, queue: u16, frames: *mut RawFrame, count: u16) -> u16;
    fn sprat_dpdk_alloc(pool: *mut c_void, frames: *mut RawFrame, count: u16) -> u16;
    fn sprat_dpdk_transmit(port: u16, queue: u16, frames: *const RawFrame, count: u16) -> u16;
    fn sprat_dpdk_transmit_with(
        port: u16,
        queue: u16,
        pool: *mut c_void,
        head: *const RawFrame,
        data: *const u8,
        len: u16,
    ) -> u16;
    fn sprat_dpdk_free(frames: *const RawFrame, count: u16);
    fn sprat_program_is(number: u32, name: *const c_char) -> c_int;
}

/// Loads the shim, and DPDK with it, unless they are loaded.
///
/// # Errors
/// Errors of the loader. The usual cause is a missing library of DPDK's.
pub(super) fn load() -> io::Result<()> {
    if SHIM.get().is_some() {
        return Ok(());
    }
    let file = memfd_create("sprat_dpdk.so", MemfdFlags::CLOEXEC)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::from(file.try_clone()?)
        .write_all(include_bytes!(concat!(env!("OUT_DIR"), "/sprat_dpdk.so")))?;
    let missing = |error: libloading::Error| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("cannot load DPDK (Debian has it in the package dpdk): {error}"),
        )
    };
    // SAFETY: our own library, built from `shim/dpdk.c`; the initialisers of it and of DPDK's
    // libraries require nothing of us.
    let library = unsafe { Library::new(&path) }.map_err(missing)?;
    let shim = Shim::of(&library).map_err(missing)?;
    std::mem::forget(library); // it stays loaded as long as the process runs
    let _ = SHIM.set(shim); // an equal one, if another thread was faster
    Ok(())
}
