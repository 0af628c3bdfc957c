//! `key`: roots and identities.

use crate::args::{KeyInitArgs, KeyIssueArgs, KeyShowArgs};
use crate::cmd::{print_json, print_line};
use anyhow::{Context as _, Result, bail};
use sprat_key::{Certificate, FileError, Grant, Identity, Rights, Role, Root, Terms};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Before it is issued an identity is valid for so long already, so that clocks may differ by it.
const BEFORE: u64 = 3600;

const DAY: u64 = 24 * 3600;

/// Bytes of a public key by which people tell it from others.
const SHOWN: usize = 8;

pub(crate) fn init(args: &KeyInitArgs) -> Result<ExitCode> {
    let root = Root::generate()?;
    root.save(&args.root).context("cannot write the root")?;
    let path = args.root.display();
    print_line(&format!("{path}: the root of cluster {}; keep it off the servers", brief(&root.public())))?;
    print_line("next: sprat key issue --role server")?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn issue(args: &KeyIssueArgs) -> Result<ExitCode> {
    let role = Role::from(args.role);
    if role == Role::Client && args.table.is_empty() {
        bail!(
            "a client without tables may do nothing: give --table NAME:r or --table NAME:rw, or --table '*:rw' for all"
        );
    }
    if role != Role::Client && !args.table.is_empty() {
        bail!("--table is for clients: an {role} identity is good for all tables");
    }
    let root = Root::load(&args.root).context("cannot read the root (`sprat key init` makes one)")?;
    let name = args.name.clone().unwrap_or_else(|| role.to_string());
    let output = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.id", name.replace('/', "-"))));
    let now = unix();
    let valid = (now.saturating_sub(BEFORE), now + u64::from(args.days) * DAY);
    let identity = root.issue(&Terms { role, name, grants: args.table.clone(), valid })?;
    identity.save(&output).context("cannot write the identity")?;
    print_line(&format!("{}: {}", output.display(), describe(&identity)))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn show(args: &KeyShowArgs) -> Result<ExitCode> {
    match Identity::load(&args.file) {
        Ok(identity) if args.json => print_json(&json(&identity))?,
        Ok(identity) => print_line(&describe(&identity))?,
        Err(error @ FileError::Damaged { .. }) => {
            let Ok(root) = Root::load(&args.file) else { return Err(error.into()) };
            let cluster = brief(&root.public());
            match args.json {
                true => print_json(&serde_json::json!({"kind": "root", "cluster": cluster}))?,
                false => print_line(&format!("the root of cluster {cluster}"))?,
            }
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(identity: &Identity) -> String {
    let Certificate { role, name, from, until, grants, .. } = identity.certificate();
    let mut text = format!("{role} `{name}` of cluster {}", brief(identity.root()));
    for Grant { pattern, rights } in grants {
        let may = match rights {
            Rights::Read => "reads",
            Rights::Write => "reads and writes",
        };
        write!(text, ", {may} {pattern}").expect("into a string");
    }
    write!(text, "; valid from {} until {}", date(*from), date(*until)).expect("into a string");
    match identity.check(unix()) {
        Ok(()) => text,
        Err(why) => format!("{text}; NOT VALID: {why}"),
    }
}

fn json(identity: &Identity) -> serde_json::Value {
    let Certificate { role, name, from, until, grants, .. } = identity.certificate();
    let may = |rights: &Rights| if *rights == Rights::Read { "r" } else { "rw" };
    let tables: Vec<_> = grants.iter().map(|grant| format!("{}:{}", grant.pattern, may(&grant.rights))).collect();
    serde_json::json!({
        "kind": "identity",
        "cluster": brief(identity.root()),
        "role": role.to_string(),
        "name": name,
        "tables": tables,
        "from": from,
        "until": until,
        "valid": identity.check(unix()).is_ok(),
    })
}

/// The beginning of a key, in hexadecimal.
fn brief(key: &[u8]) -> String {
    key[..SHOWN].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn date(unix: u64) -> String {
    match UNIX_EPOCH.checked_add(Duration::from_secs(unix)).filter(|_| unix < 1 << 37) {
        Some(time) => httpdate::fmt_http_date(time),
        None => format!("second {unix}"),
    }
}

/// Seconds since 1970.
fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
