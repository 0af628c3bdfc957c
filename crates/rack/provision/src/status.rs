//! Parses the output of nodetool.

use serde::Serialize;

/// An instance in the output of `nodetool status`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Node {
    /// Status and state: `UN` is up and normal, `DN` down, `UJ` joining, `UL` leaving.
    pub state: String,
    /// The instance's address.
    pub address: String,
    /// Size of the instance's data, as nodetool prints it.
    pub load: String,
    /// Number of the instance's tokens.
    pub tokens: u32,
    /// The instance's host ID.
    pub id: String,
    /// The instance's rack.
    pub rack: String,
}

/// Parses the output of `nodetool status`. Lines that describe no instance are skipped.
#[must_use]
pub fn nodes(text: &str) -> Vec<Node> {
    text.lines().filter_map(node).collect()
}

/// Parses a line like `UN  10.0.0.3  104.32 KiB  16  100.0%  3d4c5a57-...  c0-n1`. Unknown values
/// are `?`.
fn node(line: &str) -> Option<Node> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let state = *words.first()?;
    let known = state.len() == 2
        && state.starts_with(['U', 'D', '?'])
        && state.ends_with(['N', 'L', 'J', 'M', 'S', '?']);
    let address: std::net::IpAddr = words.get(1).filter(|_| known)?.parse().ok()?;
    // An unknown load is one word, a known load is two words.
    let (load, rest) = match words.get(2..)? {
        ["?", rest @ ..] => ("?".to_owned(), rest),
        [number, unit, rest @ ..] => (format!("{number} {unit}"), rest),
        _ => return None,
    };
    let tokens = rest.first()?.parse().ok()?;
    let [.., id, rack] = rest else { return None };
    if rest.len() < 3 {
        return None;
    }
    let (id, rack) = ((*id).to_owned(), (*rack).to_owned());
    Some(Node { state: state.to_owned(), address: address.to_string(), load, tokens, id, rack })
}

/// Parses the schema versions in the output of `nodetool describecluster`, each with the addresses
/// of its instances. If all instances agree, there is one version.
#[must_use]
pub fn schemas(text: &str) -> Vec<(String, Vec<String>)> {
    let lines = text.lines().map(str::trim).skip_while(|line| *line != "Schema versions:").skip(1);
    let version = |line: &str| {
        let (version, addresses) = line.split_once(": [")?;
        let addresses = addresses.strip_suffix(']')?;
        Some((
            version.to_owned(),
            addresses.split(',').map(|address| address.trim().to_owned()).collect(),
        ))
    };
    lines.skip_while(|line| line.is_empty()).map_while(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_versions_are_parsed() {
        let text = "Cluster Information:\n\tName: r\n\tSchema versions:\n\t\ta-1: [10.0.0.3, \
                    10.0.0.5]\n\n\t\tUNREACHABLE: [10.0.0.7]\n\nStats:\n";
        let first = schemas(text);
        assert_eq!(
            first[0],
            ("a-1".to_owned(), vec!["10.0.0.3".to_owned(), "10.0.0.5".to_owned()])
        );
        assert_eq!(schemas("Schema versions:\n"), []);
        assert_eq!(schemas("nothing"), []);
    }

    #[test]
    fn nodetool_status_is_parsed() {
        let text = "Datacenter: dc1\n===============\nStatus=Up/Down\n|/ \
                    State=Normal/Leaving/Joining/Moving\n\
                    --  Address   Load        Tokens  Owns (effective)  Host \
                    ID                               Rack \n\
                    UN  10.0.0.3  104.32 KiB  16      100.0%            \
                    3d4c5a57-3f7c-4b5c-9a3b-1d2c3b4a5f60  c0-n1\n\
                    DN  10.0.0.5  ?           16      100.0%            \
                    9d4c5a57-3f7c-4b5c-9a3b-1d2c3b4a5f60  c0-n2\n\nNote: nothing\n";
        let found = nodes(text);
        let short: Vec<_> = found
            .iter()
            .map(|node| (node.state.as_str(), node.load.as_str(), node.rack.as_str()))
            .collect();
        assert_eq!(short, [("UN", "104.32 KiB", "c0-n1"), ("DN", "?", "c0-n2")]);
        assert_eq!((found[0].tokens, found[1].address.as_str()), (16, "10.0.0.5"));
        assert_eq!(found[1].id, "9d4c5a57-3f7c-4b5c-9a3b-1d2c3b4a5f60");
        assert_eq!(nodes("UN\nUN 10.0.0.1\nUN nowhere 1 KiB 16 1% x y\nNo nodes"), []);
    }
}
