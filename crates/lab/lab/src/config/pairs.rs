//! The pairs of ports in a box without a switch.

/// Why pairs are invalid. Every port must be in exactly one pair.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PairError {
    /// There are more than two ports, and no pairs are given.
    #[error(
        "{0} ports are joined in pairs: say which, as in pairs = [[\"a0\", \"b0\"], [\"c0\", \
         \"d0\"]] or --pair a0,b0 --pair c0,d0"
    )]
    Missing(usize),
    /// A switch joins all ports, so it has no pairs.
    #[error("pairs need forward = \"cross\": a switch joins every port with every other")]
    Switch,
    /// There is no such port.
    #[error("pairs: no port {0:?}; the ports are {1}")]
    Unknown(String, String),
    /// A port is in a pair with itself, or in two pairs.
    #[error("pairs: {0} is named twice: a port has one far end, another port")]
    Twice(String),
    /// A port is in no pair.
    #[error("pairs: {0} is in no pair: add one, or leave the port out")]
    Alone(String),
}

/// Returns the indices of the ports, ordered so that the first two are a pair, the next two are a
/// pair, and so on.
///
/// # Errors
/// A port is in no pair or in several, or a name is unknown.
pub(crate) fn in_pairs(pairs: &[[String; 2]], ports: &[&str]) -> Result<Vec<usize>, PairError> {
    let mut order = Vec::new();
    for name in pairs.iter().flatten() {
        let at = ports.iter().position(|port| port == name);
        let at = at.ok_or_else(|| PairError::Unknown(name.clone(), ports.join(", ")))?;
        if order.contains(&at) {
            return Err(PairError::Twice(name.clone()));
        }
        order.push(at);
    }
    match (0..ports.len()).find(|at| !order.contains(at)) {
        Some(alone) => Err(PairError::Alone(ports[alone].to_owned())),
        None => Ok(order),
    }
}
