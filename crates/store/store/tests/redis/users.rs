//! Clients that many programs use: redis-py, and Django's cache.

use super::client::RedisProcess;
use super::{Durability, Served, options};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// Does what users do, at a server.
fn use_as_they_do(packages: &Path, server: SocketAddr) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis/users.py");
    let output = Command::new("python3")
        .arg(script)
        .arg(server.port().to_string())
        .env("PYTHONPATH", packages)
        .output()
        .unwrap();
    assert!(output.status.success(), "{server}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn redis_py_and_the_cache_of_django_work_as_with_redis() {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools/redis-clients");
    if !["redis", "django"].iter().all(|package| tools.join(package).is_dir()) {
        return sprat_testing::skip(
            "redis-py and Django: they are not in target/tools (scripts/setup fetches them)",
        );
    }
    match RedisProcess::start() {
        Some(redis) => use_as_they_do(&tools, redis.address),
        None => sprat_testing::skip("redis-server is not installed"),
    }
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::Sync));
    use_as_they_do(&tools, served.address);
    served.server.stop().unwrap();
}
