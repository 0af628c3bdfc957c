//! Compiles the C side of the DPDK driver, when the feature asks for it.

fn main() {
    println!("cargo:rerun-if-changed=shim");
    #[cfg(feature = "dpdk")]
    dpdk();
}

#[cfg(feature = "dpdk")]
fn dpdk() {
    let found = pkg_config::Config::new().atleast_version("22.11").cargo_metadata(false).probe("libdpdk");
    let dpdk = found.unwrap_or_else(|error| {
        panic!("the feature `dpdk` needs DPDK 22.11 or later (Debian: libdpdk-dev; `make setup` installs it): {error}")
    });
    let mut build = cc::Build::new();
    build.file("shim/dpdk.c").file("shim/xdp.c").opt_level(3).warnings(true).extra_warnings(true);
    // DPDK's headers use vector instructions up to SSE4.2, and want its configuration before anything else.
    build.flag("-march=corei7").flag("-include").flag("rte_config.h");
    for path in &dpdk.include_paths {
        build.flag("-isystem").flag(path.to_str().expect("paths of packages are plain"));
    }
    build.compile("sprat_dpdk");
    for path in &dpdk.link_paths {
        println!("cargo:rustc-link-search=native={}", path.display());
    }
    // Only what the shim calls; device drivers are loaded by DPDK itself when it starts.
    for library in ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_ring", "rte_eal", "rte_kvargs"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}
