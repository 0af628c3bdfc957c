//! Fits new instances into a ring that exists: the instances on the ring keep their tokens, and new
//! tokens go between these.

use crate::ring::{Instance, Ring, Token};

/// The number of different tokens, all around the ring.
const AROUND: u128 = 1 << 64;

impl Ring {
    /// Extends a ring on which some instances have tokens. `taken` lists the tokens of each
    /// instance; the list of an instance that joins is empty. `instances` gives the number of
    /// tokens that each instance gets. A new token goes to a place where as few of the nearest
    /// tokens as possible belong to its own server; the replication factor says how many tokens are
    /// looked at. Among equally good places, the token splits the range of the instance with the
    /// most rows per token. So in the end the shares of rows are in proportion to the numbers of
    /// tokens.
    ///
    /// # Panics
    /// If no instance has tokens: [`Ring::new`] allocates the tokens of a new ring.
    #[must_use]
    pub fn extended(instances: Vec<Instance>, taken: &[Vec<i64>], replication: usize) -> Self {
        let own = |(instance, tokens): (usize, &Vec<i64>)| {
            tokens.iter().map(|at| Token { at: *at, instance }).collect::<Vec<_>>()
        };
        let mut tokens: Vec<Token> = taken.iter().enumerate().flat_map(own).collect();
        assert!(!tokens.is_empty(), "a ring that is there has tokens");
        tokens.sort_unstable();
        tokens.dedup_by_key(|token| token.at);
        let total: usize = instances.iter().map(|instance| instance.tokens).sum();
        let wanted = AROUND / total.max(1) as u128;
        for newcomer in (0..instances.len()).filter(|one| taken.get(*one).is_none_or(Vec::is_empty))
        {
            for _ in 0..instances[newcomer].tokens {
                insert(&mut tokens, &instances, newcomer, wanted, replication);
            }
        }
        Self::of(instances, tokens)
    }
}

/// Returns the number of hashes in the range of the token at index `at`: from the previous token,
/// excluded, to this token.
fn range(tokens: &[Token], at: usize) -> u128 {
    let before = tokens[(at + tokens.len() - 1) % tokens.len()].at;
    match tokens[at].at.wrapping_sub(before).cast_unsigned() {
        0 => AROUND, // a single token owns all hashes
        some => u128::from(some),
    }
}

/// Gives `newcomer` one more token. The token takes `wanted` hashes from another token's range, or
/// half of that range if the range is too small.
fn insert(
    tokens: &mut Vec<Token>,
    instances: &[Instance],
    newcomer: usize,
    wanted: u128,
    replication: usize,
) {
    let mut has = vec![0_u128; instances.len()];
    (0..tokens.len()).for_each(|at| has[tokens[at].instance] += range(tokens, at));
    let server = |at: usize| instances[tokens[at % tokens.len()].instance].server;
    let near = |at: usize| {
        let around = 1..replication.min(tokens.len());
        let on_both_sides = around.flat_map(|step| [at + step - 1, at + tokens.len() - step]);
        on_both_sides.filter(|other| server(*other) == instances[newcomer].server).count()
    };
    let worth = |at: usize| {
        let owner = tokens[at].instance;
        let for_its_tokens = has[owner] / instances[owner].tokens.max(1) as u128;
        (std::cmp::Reverse(near(at)), owner != newcomer, for_its_tokens, range(tokens, at))
    };
    let best = (0..tokens.len()).filter(|at| range(tokens, *at) > 1).max_by_key(|at| worth(*at));
    let best = best.expect("there are fewer tokens than numbers, so two of them have room between");
    let room = range(tokens, best);
    let step = if wanted < room { wanted } else { room / 2 };
    let before = tokens[(best + tokens.len() - 1) % tokens.len()].at;
    let step = u64::try_from(step).expect("it is less than all around").cast_signed();
    let token = Token { at: before.wrapping_add(step), instance: newcomer };
    let place = tokens.partition_point(|other| other.at < token.at);
    tokens.insert(place, token);
}
