//! Instances that come to a ring that is there: whoever is on it keeps its tokens, and those of
//! newcomers are fitted in between.

use crate::ring::{Instance, Ring, Token};

/// All numbers that tokens can be.
const AROUND: u128 = 1 << 64;

impl Ring {
    /// A ring on which some have tokens already: `taken`, of each instance its own. Who has none
    /// gets as many as it is to have, so that in the end each has about the share of rows that
    /// its tokens are of all: each new token takes that much from whoever has most
    /// for its tokens, where no token of the same server is as near as there are replicas.
    ///
    /// # Panics
    /// When nobody has any: [`Ring::new`] is for that.
    #[must_use]
    pub fn grown(instances: Vec<Instance>, taken: &[Vec<i64>], replication: usize) -> Self {
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

/// Rows before a token that are its own: how many numbers.
fn range(tokens: &[Token], at: usize) -> u128 {
    let before = tokens[(at + tokens.len() - 1) % tokens.len()].at;
    match tokens[at].at.wrapping_sub(before).cast_unsigned() {
        0 => AROUND, // the only one has all of them
        some => u128::from(some),
    }
}

/// Gives an instance one more token, which takes `wanted` rows from another, or half of what that
/// one has there.
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
