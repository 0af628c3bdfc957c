//! Compares the figures that others claim for a rack with the figures that the plan computes.

use crate::capacity::Capacity;
use crate::quantity::digits;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Prefixes of units, each with its exponent of 1,000.
const PREFIXES: [(&str, i32); 6] = [("", 0), ("k", 1), ("M", 2), ("G", 3), ("T", 4), ("P", 5)];

/// Keys that a claim can have, each with its unit.
const KNOWN: &[(&str, &str)] = &[
    ("chassis", ""),
    ("servers", ""),
    ("cores", ""),
    ("memory", "B"),
    ("disks", "B"),
    ("ops", "op/s"),
    ("flops", "op/s"),
    ("memory-rate", "B/s"),
    ("disk-rate", "B/s"),
    ("power", "W"),
    ("weight", "kg"),
    ("height", "U"),
    ("hops", ""),
];

/// A claim, and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// What the claim is about: a key such as `memory`.
    pub key: String,
    /// The claimed amount, as the description writes it.
    pub claimed: String,
    /// The plan's amount, in the claim's unit.
    pub found: String,
    /// Whether the plan's amount agrees with the claim.
    pub verdict: Verdict,
}

/// Whether a claim agrees with the plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The amounts agree to the last digit that the claim gives.
    Follows,
    /// The amounts agree to that digit if the claim's prefix means a power of 1,024. Only bytes are
    /// compared in this way.
    FollowsInBinary,
    /// The amounts differ: the claim is the plan's amount times this number.
    Off(f64),
    /// The description lacks the values from which the amount could be computed.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Follows => write!(f, "follows"),
            Self::FollowsInBinary => write!(f, "follows, in units of 1,024"),
            Self::Off(ratio) => {
                write!(f, "does NOT follow: {} times the planned amount", digits(*ratio))
            }
            Self::Unknown => write!(f, "unknown: the description lacks the servers' value"),
        }
    }
}

/// A claim has an unknown key, or an amount that cannot be parsed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("claims.{key} = {claimed:?}: want {want}")]
pub struct ClaimError {
    key: String,
    claimed: String,
    want: String,
}

/// Compares each claim with the plan, and returns the results in a fixed order of keys. `hops` is
/// the network's diameter in links.
///
/// # Errors
/// The key is unknown, or the amount is not a number below 1e15 with an SI prefix and the unit of
/// its key. The error names the claim and says what is expected.
pub fn judge(
    claims: &BTreeMap<String, String>,
    has: &Capacity,
    hops: usize,
) -> Result<Vec<Claim>, ClaimError> {
    if let Some((key, claimed)) =
        claims.iter().find(|(key, _)| !KNOWN.iter().any(|(known, _)| known == key))
    {
        let known: Vec<&str> = KNOWN.iter().map(|(key, _)| *key).collect();
        let want = format!("a claim about one of {}", known.join(", "));
        return Err(ClaimError { key: key.clone(), claimed: claimed.clone(), want });
    }
    let given = KNOWN.iter().filter_map(|(key, unit)| Some((key, unit, claims.get(*key)?)));
    given.map(|(key, unit, claimed)| one(key, unit, claimed, found(key, has, hops))).collect()
}

fn found(key: &str, has: &Capacity, hops: usize) -> Option<f64> {
    Some(match key {
        "chassis" => has.chassis as f64,
        "servers" => has.servers as f64,
        "cores" => has.cores as f64,
        "memory" => has.memory.0,
        "disks" => has.disks.0,
        "ops" => has.ops?.0,
        "flops" => has.flops?.0,
        "memory-rate" => has.memory_rate?.0,
        "disk-rate" => has.disk_rate?.0,
        "power" => has.power?.0,
        "weight" => has.weight?.0,
        "height" => has.height as f64,
        "hops" => hops as f64,
        _ => return None,
    })
}

fn one(key: &str, unit: &str, claimed: &str, found: Option<f64>) -> Result<Claim, ClaimError> {
    let parsed = parse(claimed, unit).ok_or_else(|| {
        let want = format!(
            "a number{}, such as \"{}\"",
            if unit.is_empty() { "" } else { " with its unit" },
            example(unit)
        );
        ClaimError { key: key.to_owned(), claimed: claimed.to_owned(), want }
    })?;
    let (number, place, power) = parsed;
    // The claim is within one unit of its last digit: its author may have rounded or truncated.
    let close = |found: f64, scale: f64| (found / scale - number).abs() < place;
    let (decimal, binary) = (1000_f64.powi(power), 1024_f64.powi(power));
    let (verdict, scale) = match found {
        None => (Verdict::Unknown, decimal),
        Some(found) if close(found, decimal) => (Verdict::Follows, decimal),
        Some(found) if unit == "B" && close(found, binary) => (Verdict::FollowsInBinary, binary),
        Some(found) => (Verdict::Off(number * decimal / found), decimal),
    };
    let prefix =
        PREFIXES.iter().find(|(_, known)| *known == power).map_or("", |(prefix, _)| prefix);
    let found = found.map_or("-".to_owned(), |found| {
        let text = format!("{} {prefix}{unit}", digits(found / scale));
        text.trim_end().to_owned()
    });
    Ok(Claim { key: key.to_owned(), claimed: claimed.to_owned(), found, verdict })
}

fn example(unit: &str) -> String {
    match unit {
        "" => "736".to_owned(),
        "kg" | "U" => format!("6{unit}"),
        _ => format!("23T{unit}"),
    }
}

/// Parses an amount. Returns its number, the value of one unit in its last decimal place, and the
/// exponent of 1,000 of its prefix.
fn parse(text: &str, unit: &str) -> Option<(f64, f64, i32)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = (&text[..end], text[end..].trim());
    let places = number.split_once('.').map_or(0, |(_, behind)| behind.len());
    let prefix = rest.strip_suffix(unit)?;
    let (_, power) = PREFIXES.iter().find(|(known, _)| *known == prefix)?;
    let value = number.parse::<f64>().ok().filter(|value| *value < 1e15)?;
    Some((value, 10_f64.powi(-i32::try_from(places).ok()?), *power))
}
