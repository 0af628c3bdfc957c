//! The host names that a share accepts.
//!
//! By DNS rebinding, a page in a browser can make its own host name resolve to a private address.
//! The page could then read files that the server at that address shares with everybody. The
//! browser sends the page's host name in `Host`, so at loopback and private addresses only the
//! share's own names are accepted. If a token is required, any name is accepted, because such a
//! page does not have the token.

use std::net::{IpAddr, Ipv6Addr};

/// The host names that are accepted at loopback and private addresses.
#[derive(Debug)]
pub(super) struct Names(Vec<String>);

impl Names {
    /// Accepts this machine's own name, alone and with `.local` after it, and the names in `given`.
    pub(super) fn new(given: &[String]) -> Self {
        let own = Some(sprat_host::name().to_ascii_lowercase())
            .filter(|own| !own.is_empty())
            .into_iter()
            .flat_map(|own| [format!("{own}.local"), own]);
        Self(
            given
                .iter()
                .map(|name| name.trim_end_matches('.').to_ascii_lowercase())
                .chain(own)
                .collect(),
        )
    }

    /// Returns whether a request that arrived at the address `at` may be for `host`, the value of
    /// `Host`. At a public address every name is allowed. At a private address only addresses,
    /// `localhost` and names below it, and this server's names are allowed. A request without
    /// `Host` is allowed, because no browser sends such a request.
    pub(super) fn allow(&self, host: Option<&str>, at: IpAddr) -> bool {
        let Some(host) = host.filter(|host| !host.is_empty()) else { return true };
        if !is_private(at.to_canonical()) {
            return true;
        }
        if let Some(rest) = host.strip_prefix('[') {
            return rest
                .split(']')
                .next()
                .is_some_and(|literal| literal.parse::<Ipv6Addr>().is_ok());
        }
        let name =
            host.split(':').next().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
        let is_local = name == "localhost" || name.ends_with(".localhost");
        is_local || name.parse::<std::net::Ipv4Addr>().is_ok() || self.0.contains(&name)
    }
}

/// Returns whether an address is reachable only from nearby, so that public names have no reason to
/// resolve to it.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            let shared = first == 100 && (64..128).contains(&second);
            v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_unspecified()
                || shared
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6.is_unspecified()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_are_refused_at_private_addresses() {
        let names = Names::new(&["NAS.example.".to_owned()]);
        let allows = |host: &str, at: &str| names.allow(Some(host), at.parse().unwrap());
        for host in [
            "127.0.0.1:8040",
            "10.0.0.7",
            "[::1]:8040",
            "[fd00::1]",
            "localhost:1",
            "a.localhost",
            "nas.example:80",
        ] {
            assert!(allows(host, "127.0.0.1") && allows(host, "fd00::7"), "{host}");
        }
        for host in [
            "evil.example:8040",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "nas.example.evil",
            "[x]",
        ] {
            for at in [
                "127.0.0.1",
                "::1",
                "10.1.2.3",
                "192.168.0.9",
                "100.64.0.1",
                "fe80::1",
                "::ffff:10.0.0.1",
            ] {
                assert!(!allows(host, at), "{host} at {at}");
            }
            assert!(
                allows(host, "203.0.113.5") && allows(host, "2001:db8::1"),
                "{host} where anybody may lead to"
            );
        }
        assert!(names.allow(None, "127.0.0.1".parse().unwrap()));
    }
}
