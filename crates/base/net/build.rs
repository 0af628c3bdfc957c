//! Compiles the C shim of the DPDK driver into a shared library, if the feature is on. The binary
//! embeds the library and loads it when a locator needs DPDK, so that users of other drivers need
//! no DPDK.

fn main() {
    println!("cargo:rerun-if-changed=shim");
    #[cfg(feature = "dpdk")]
    dpdk();
}

#[cfg(feature = "dpdk")]
fn dpdk() {
    let found =
        pkg_config::Config::new().atleast_version("22.11").cargo_metadata(false).probe("libdpdk");
    let dpdk = found.unwrap_or_else(|error| {
        panic!(
            "the feature `dpdk` needs DPDK 22.11 or later (Debian: libdpdk-dev; `make setup` \
                installs it): {error}"
        )
    });
    let mut build = cc::Build::new();
    build.opt_level(3).pic(true).warnings(true).extra_warnings(true);
    // DPDK's headers use vector instructions up to SSE4.2, and DPDK's configuration must be
    // included before them.
    build.flag("-march=corei7").flag("-include").flag("rte_config.h");
    for path in &dpdk.include_paths {
        build.flag("-isystem").flag(path.to_str().expect("paths of packages are plain"));
    }
    let out = std::env::var("OUT_DIR").expect("cargo says where to");
    let mut command = build.get_compiler().to_command();
    command
        .args(["-shared", "-Wl,--no-undefined", "-o"])
        .arg(format!("{out}/sprat_dpdk.so"))
        .args(["shim/dpdk.c", "shim/xdp.c"]);
    command.args(dpdk.link_paths.iter().map(|path| format!("-L{}", path.display())));
    // Link only the libraries that the shim calls. DPDK itself loads device drivers when it starts.
    command.args(
        ["ethdev", "mbuf", "mempool", "ring", "eal", "kvargs"]
            .map(|library| format!("-lrte_{library}")),
    );
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
