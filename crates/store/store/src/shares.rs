//! Divides a resource among the sessions that use it.

/// Units of a resource that sessions take and give back. Each session may always have one unit.
/// Beyond that, all sessions share a number of units.
///
/// A session may take one more unit as long as it holds fewer units than shared units are free. A
/// single session gets about half of the shared units. The more sessions take all that they can
/// get, the fewer units each has (Choudhury and Hahne, "Dynamic queue length thresholds", 1998). So
/// no session locks others out, whatever number of units it takes and however long it holds them.
#[derive(Debug)]
pub(crate) struct Shares {
    places: usize,
    /// Shared units that are taken.
    common: usize,
    /// All units that are taken.
    taken: usize,
    /// Units by session.
    held: Vec<u32>,
    /// How often a session was refused.
    refused: u64,
}

impl Shares {
    pub(crate) fn new(places: usize) -> Self {
        Self { places, common: 0, taken: 0, held: Vec::new(), refused: 0 }
    }

    /// Returns whether a session may take one more unit; counts a refusal.
    #[inline]
    pub(crate) fn admits(&mut self, session: u32) -> bool {
        let held = self.held.get(session as usize).copied().unwrap_or(0);
        let admits = held == 0 || (held as usize) < self.places - self.common;
        self.refused += u64::from(!admits);
        admits
    }

    /// Gives a session one more unit, to which it must be [admitted](Self::admits).
    #[inline]
    pub(crate) fn take(&mut self, session: u32) {
        let at = session as usize;
        if self.held.len() <= at {
            self.held.resize(at + 1, 0);
        }
        self.common += usize::from(self.held[at] > 0);
        self.held[at] += 1;
        self.taken += 1;
    }

    /// Takes one unit back from a session.
    #[inline]
    pub(crate) fn give(&mut self, session: u32) {
        let held = &mut self.held[session as usize];
        *held -= 1;
        self.common -= usize::from(*held > 0);
        self.taken -= 1;
    }

    /// Returns the number of units that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Returns how often a session was refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns whether fewer shared units are free than a session has slots, so that a session may
    /// be refused.
    pub(crate) fn are_scarce(&self) -> bool {
        self.places - self.common < sprat_rpc::MAX_SLOTS
    }
}

#[cfg(test)]
mod tests {
    use super::Shares;
    use proptest::prelude::*;

    proptest! {
        /// However many sessions take all units that they are given, and in whatever order, a
        /// session that has no unit gets one.
        #[test]
        fn a_newcomer_finds_a_place(
            places in 8usize..200, greedy in 1u32..300, order: u64, in_turn: bool,
        ) {
            let mut shares = Shares::new(places);
            let mut turn = order | 1;
            for round in 0..2000 {
                turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let drawn = u32::try_from((turn >> 33) % u64::from(greedy)).unwrap();
                let session = if in_turn { (round / 64).min(greedy - 1) } else { drawn };
                if shares.admits(session) {
                    shares.take(session);
                }
            }
            prop_assert!(shares.common <= places && shares.taken() <= places + greedy as usize);
            prop_assert!(shares.admits(greedy), "a session without a unit always gets one");
            if greedy == 1 {
                prop_assert!(shares.held[0] as usize > places / 2, "one session alone gets half");
            }
            for session in 0..greedy {
                while shares.held.get(session as usize).is_some_and(|held| *held > 0) {
                    shares.give(session);
                }
            }
            prop_assert_eq!((shares.taken(), shares.common), (0, 0));
        }
    }
}
