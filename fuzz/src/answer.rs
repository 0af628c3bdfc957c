//! Answers, and every kind of list that their bodies can contain.

use sprat_wire::index::OWN_KEYS;
use sprat_wire::op::{Answer, BatchItems, Items, Records, WatchPage};
use sprat_wire::order::RangePage;

pub(crate) fn run(bytes: &[u8]) {
    let Some(answer) = Answer::parse(bytes) else { return };
    let taken: usize = Items::new(answer.body, answer.count)
        .map_while(|item| item.map(|item| item.key.len() + item.value.len()))
        .sum();
    assert!(taken <= answer.body.len());
    if let Ok(items) = BatchItems::parse(answer.body) {
        let count = items.len();
        assert_eq!(items.map(Answer::parse).count(), count);
    }
    for index in [OWN_KEYS, 1] {
        if let Some(page) = RangePage::parse(&answer, index) {
            assert!(page.covered.iter().all(|range| range.first <= range.last));
            assert!(page.last.is_none_or(|last| last.len() <= answer.body.len()));
            let _ = page.rows();
        }
    }
    if let Some(page) = WatchPage::parse(&answer) {
        assert!(page.range.first <= page.range.last);
        assert_eq!(page.present.len() + page.removed.len(), answer.count as usize);
    }
    let mut tables = Records::new(answer.body);
    while !tables.is_done() && tables.table().is_some() {}
    let mut servers = Records::new(answer.body);
    while !servers.is_done() && servers.server().is_some() {}
    let mut counters = Records::new(answer.body);
    while !counters.is_done() && counters.counter().is_some() {}
}
