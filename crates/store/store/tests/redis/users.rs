//! What many programs use: redis-py, Django's cache, and the task queues Celery and Huey.

use super::client::RedisProcess;
use super::{Durability, Served, options};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// Does what users do, at a server.
fn use_as_they_do(script: &str, packages: &Path, server: SocketAddr) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis").join(script);
    let output = Command::new("python3")
        .arg(script)
        .arg(server.port().to_string())
        .env("PYTHONPATH", packages)
        .output()
        .unwrap();
    assert!(output.status.success(), "{server}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Does what users of these packages do, at Redis and at a server of ours.
fn use_both(script: &str, packages: &[&str]) {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools/redis-clients");
    if !packages.iter().all(|package| tools.join(package).is_dir()) {
        return sprat_testing::skip(&format!(
            "{}: they are not in target/tools (scripts/setup fetches them)",
            packages.join(" and ")
        ));
    }
    match RedisProcess::start() {
        Some(redis) => use_as_they_do(script, &tools, redis.address),
        None => sprat_testing::skip("redis-server is not installed"),
    }
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::Sync));
    use_as_they_do(script, &tools, served.address);
    served.server.stop().unwrap();
}

#[test]
fn redis_py_and_the_cache_of_django_work_as_with_redis() {
    use_both("users.py", &["redis", "django"]);
}

#[test]
fn the_task_queues_celery_and_huey_work_as_with_redis() {
    use_both("queues.py", &["celery", "huey"]);
}
