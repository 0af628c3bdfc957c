//! Plans and prepared entries of transactions.

use sprat_wire::expiry::Ttl;
use sprat_wire::once::{COMPLETIONS, OperationId};
use sprat_wire::op::{Condition, Malformed, Request};
use sprat_wire::tablet::{hash, table_of};
use sprat_wire::transaction::{
    Decision, MAX_TRANSACTION, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_KEY, OperationState,
    PARTICIPANT_BYTES, PREPARED, Participant, Plan, TransactionAction, Votes, parse_prepared_key,
    prepared_key,
};
use zerocopy::IntoBytes as _;

const ID: OperationId = OperationId { client: 7, slot: 3, sequence: 9, resent: false };

fn participants(count: usize) -> Vec<Participant> {
    vec![Participant { table: 1, position: 2, id: ID }; count]
}

#[test]
fn a_prepared_entry_has_the_hash_of_its_object() {
    let key = prepared_key(b"key", &OperationId { resent: true, ..ID });
    assert_eq!(parse_prepared_key(&key), Some((&b"key"[..], ID)));
    assert_eq!(hash(5, 1 | PREPARED, &key), hash(5, 1, b"key"));
    assert_ne!(hash(5, 1 | COMPLETIONS, b"key"), hash(5, 1, b"key"));
    assert_eq!(parse_prepared_key(&key[..15]), None);
    for id in [1, 1 | PREPARED, 1 | COMPLETIONS] {
        assert_eq!(table_of(id), 1);
    }
}

#[test]
fn a_plan_at_the_limits_is_valid_and_one_beyond_them_is_not() {
    let longest = vec![0; MAX_TRANSACTION_BYTES];
    let plan =
        Plan::encode(TransactionAction::Write(&longest, None), &participants(MAX_TRANSACTION));
    assert!(plan.len() <= sprat_wire::MAX_VALUE);
    assert_eq!(Plan::parse(&plan).expect("valid").participants().len(), MAX_TRANSACTION);
    let too_long = [&plan[..], &[0]].concat();
    assert_eq!(Plan::parse(&too_long), None);
    let (ttl, participants_of) = (Some(Ttl::MAX), participants(MAX_TRANSACTION));
    let plan = Plan::encode(TransactionAction::Write(&longest, ttl), &participants_of);
    assert!(plan.len() <= sprat_wire::MAX_VALUE);
    assert_eq!(
        Plan::parse(&plan).expect("valid").action(),
        TransactionAction::Write(&longest, ttl)
    );
    assert_eq!(Plan::parse(&[&plan[..], &[0]].concat()), None);
    let check = Plan::encode(TransactionAction::Check, &participants(2));
    for cut in 0..check.len() {
        assert_eq!(Plan::parse(&check[..cut]), None, "{cut} bytes");
    }
    assert_eq!(Plan::parse(&[&check[..], &[0]].concat()), None, "a check has no value");
    let of = |action: u8, count: usize| {
        let mut bytes = vec![action, u8::try_from(count).expect("few")];
        bytes.resize(2 + count * PARTICIPANT_BYTES, 0);
        Plan::parse(&bytes).is_some()
    };
    assert!(of(2, 1));
    assert!(!of(3, 1), "a write without its time to live");
    assert!(!of(4, 1), "an unknown action");
    assert!(!of(2, 0), "no participants");
    assert!(!of(2, MAX_TRANSACTION + 1));
}

#[test]
fn a_request_to_prepare_or_decide_that_is_not_valid_is_refused() {
    let plan = Plan::encode(TransactionAction::Remove, &participants(1));
    let plan = Plan::parse(&plan).expect("valid");
    let bytes = |request: &Request<'_>| {
        let (header, key, value) = request.parts();
        [header.as_bytes(), key, value].concat()
    };
    let key = vec![b'k'; MAX_TRANSACTION_KEY + 1];
    let prepare = |key| Request::Prepare { table: 1, key, condition: Condition::None, plan };
    assert!(Request::parse(&bytes(&prepare(&key[1..]))).is_ok());
    assert_eq!(Request::parse(&bytes(&prepare(&key))), Err(Malformed::Plan));
    let decide =
        Request::Decide { table: 1, position: 2, id: &ID.bytes(), decision: Decision::End };
    let bytes = bytes(&decide);
    assert!(Request::parse(&bytes).is_ok());
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        Request::parse(&bytes).err()
    };
    assert_eq!(with(1, 4), Some(Malformed::Condition(4)), "an unknown decision");
    assert_eq!(with(2, 15), Some(Malformed::Trailing(1)), "an id that is too short");
    assert_eq!(with(7, 1 << 6), Some(Malformed::Table(1 | PREPARED)));
}

#[test]
fn all_prepared_is_committed_and_one_committed_counts_for_all() {
    let decision = |states: &[OperationState]| {
        let mut votes = Votes::default();
        states.iter().for_each(|&state| votes.add(state));
        votes.decision()
    };
    use OperationState::{Aborted, Committed, Ended, Prepared};
    assert_eq!(decision(&[Prepared, Prepared]), Decision::Commit);
    assert_eq!(decision(&[Prepared, Aborted]), Decision::Abort);
    assert_eq!(decision(&[Prepared, Committed]), Decision::Commit);
    assert_eq!(decision(&[Prepared, Committed, Ended]), Decision::Commit);
    for code in 0..4 {
        assert_eq!(OperationState::of(code).map(|state| state as u64), Some(code));
    }
    assert_eq!(OperationState::of(4), None);
}
