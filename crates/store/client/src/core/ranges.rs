//! Scans of ranges of keys: a request to every server of an ordered table, answered as one.

use super::{Core, OwnAnswer};
use crate::calls::AnswerSink;
use crate::error::Error;
use crate::target::ServerHandle;
use sprat_net::Nanos;
use sprat_wire::index::OWN_KEYS;
use sprat_wire::op::{Answer, Request, Status, write_scan_record};
use sprat_wire::order::{RangePage, RangeQuery};
use sprat_wire::tablet::Range;
use std::collections::HashMap;

/// The largest number of scans of ranges in progress in one client; a further one fails with
/// `Error::TooManyPending`.
const MAX_RANGE_SCANS: usize = 64;

/// Tag bit of the requests of these scans; the other bits are the number of a request.
pub(super) const RANGE_TAG: u64 = 1 << 60;

/// A scan of a range in progress.
///
/// The client asks each server for a page of all its tablets of the table. A tablet that moves
/// between two answers may be in both pages, or in neither: the pages name the positions that they
/// cover, and the client asks again for those that are missing.
pub(super) struct RangeScan {
    tag: u64,
    table: u32,
    deadline: Nanos,
    /// The bytes of the [`RangeQuery`].
    query: Vec<u8>,
    /// The requests that are not answered yet: their numbers, and their positions. If tablets move
    /// meanwhile, two requests may come to the same server, and be answered with different pages.
    asked: Vec<(u64, u64)>,
    pages: Vec<OwnAnswer>,
    covered: Vec<Range>,
}

impl Core {
    /// Begins a scan. Its answer has the form of a server's answer to [`Request::ScanRange`], and
    /// covers all positions.
    pub(super) fn begin_range(
        &mut self,
        now: Nanos,
        tag: u64,
        (table, query): (u32, &RangeQuery<'_>),
        deadline: Nanos,
    ) -> Result<(), Error> {
        if self.range_scans.len() >= MAX_RANGE_SCANS {
            return Err(Error::TooManyPending(MAX_RANGE_SCANS));
        }
        let mut scan = RangeScan {
            tag,
            table,
            deadline,
            query: query.bytes().to_vec(),
            asked: Vec::new(),
            pages: Vec::new(),
            covered: Vec::new(),
        };
        // Answers to requests of a scan that failed to begin are ignored.
        self.ask_for_rest(now, &mut scan)?;
        self.range_scans.push(scan);
        Ok(())
    }

    /// Asks for a page of each server that has a part of what is not covered yet, as far as the
    /// client knows.
    fn ask_for_rest(&mut self, now: Nanos, scan: &mut RangeScan) -> Result<(), Error> {
        let table = scan.table;
        let place = self.tables.get(table).ok_or(Error::TableDropped(table))?;
        let mut servers: Vec<Option<ServerHandle>> = Vec::new();
        for rest in Range::ALL.without(scan.covered.iter().copied()) {
            for (tablet, server) in place.ranges() {
                if let Some(part) = tablet.overlap(rest)
                    && !servers.contains(&server)
                {
                    servers.push(server);
                    self.rounds += 1;
                    scan.asked.push((self.rounds, part.first));
                }
            }
        }
        let query = parsed(&scan.query);
        for &(number, position) in &scan.asked {
            let request = Request::ScanRange { table, position, query };
            let destination = self.route(&request)?;
            self.begin(now, RANGE_TAG | number, destination, &request, scan.deadline)?;
        }
        Ok(())
    }

    /// Takes a server's page for a scan, or the failure of a request of one.
    pub(super) fn range_answered(
        &mut self,
        now: Nanos,
        tag: u64,
        answer: Result<OwnAnswer, Error>,
        sink: AnswerSink<'_>,
    ) {
        // None when another request of the scan has failed.
        let number = tag & !RANGE_TAG;
        let request_of = |scan: &RangeScan| scan.asked.iter().position(|(one, _)| *one == number);
        let mut requests = self.range_scans.iter().map(request_of).enumerate();
        let Some((at, request)) = requests.find_map(|(at, request)| Some((at, request?))) else {
            return;
        };
        let mut scan = self.range_scans.swap_remove(at);
        let (_, position) = scan.asked.swap_remove(request);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return sink(scan.tag, Err(error)),
        };
        // The caller gets a refusal, or a malformed answer, as the answer to the whole scan.
        let index = parsed(&scan.query).index();
        let page = Some(answer.answer()).filter(|answer| answer.status == Status::Ok);
        let Some(page) = page.and_then(|page| RangePage::parse(&page, index)) else {
            return sink(scan.tag, Ok(answer.answer()));
        };
        if !page.covered.iter().any(|part| part.contains(position)) {
            return sink(scan.tag, Ok(Answer { number: u64::MAX, ..answer.answer() }));
        }
        scan.covered.extend(page.covered);
        scan.pages.push(answer);
        if !scan.asked.is_empty() {
            return self.range_scans.push(scan);
        }
        if Range::ALL.without(scan.covered.iter().copied()).is_empty() {
            return answer_range(&scan, sink);
        }
        match self.ask_for_rest(now, &mut scan) {
            Ok(()) => self.range_scans.push(scan),
            Err(error) => sink(scan.tag, Err(error)),
        }
    }
}

fn parsed(query: &[u8]) -> RangeQuery<'_> {
    RangeQuery::parse(query).expect("checked when the scan began")
}

/// Returns whether a position is in several of the ranges.
fn overlap(ranges: &[Range]) -> bool {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable_by_key(|range| range.first);
    ranges.windows(2).any(|pair| pair[1].first <= pair[0].last)
}

/// Merges the pages of all servers into the answer to a scan.
fn answer_range(scan: &RangeScan, sink: AnswerSink<'_>) {
    if let [page] = &scan.pages[..] {
        return sink(scan.tag, Ok(page.answer()));
    }
    let query = parsed(&scan.query);
    let range = query.range();
    let limit = usize::try_from(query.limit()).unwrap_or(usize::MAX);
    let answers: Vec<Answer<'_>> = scan.pages.iter().map(OwnAnswer::answer).collect();
    let page = |answer| RangePage::parse(answer, query.index()).expect("parsed before");
    let pages: Vec<RangePage<'_>> = answers.iter().map(page).collect();
    let Some(rows) = pages.iter().map(RangePage::rows).collect::<Option<Vec<_>>>() else {
        // The caller finds it malformed, too.
        return sink(scan.tag, Ok(Answer { number: u64::MAX, ..answers[0] }));
    };
    // A page that has more says nothing about the keys behind its last one.
    let mut last = pages
        .iter()
        .filter_map(|page| page.last)
        .reduce(|one, other| if range.comes_before(one, other) { one } else { other });
    let mut rows: Vec<_> = rows.into_iter().flatten().collect();
    rows.retain(|(key, _)| last.is_none_or(|last| !range.comes_before(last, key)));
    rows.sort_by(|(one, _), (other, _)| match range.descending {
        false => one.cmp(other),
        true => other.cmp(one),
    });
    if overlap(&scan.covered) {
        // An object may have been in the page of the server that it left, and of the one to which
        // it came. There it may have another field already.
        let mut newest = HashMap::new();
        for (at, (_, item)) in rows.iter().enumerate() {
            let best = newest.entry(item.key).or_insert((item.version, at));
            *best = (item.version, at).max(*best);
        }
        let mut at = 0..;
        rows.retain(|(_, item)| newest[item.key].1 == at.next().expect("endless"));
    }
    if rows.len() > limit {
        rows.truncate(limit);
        last = rows.last().map(|(key, _)| &key[..]);
    }
    let mut body = Vec::new();
    rows.iter().for_each(|(_, item)| write_scan_record(&mut body, item));
    let number = body.len() as u64;
    let fields = rows.iter().filter(|_| query.index() != OWN_KEYS);
    let fields = fields.map(|(key, item)| &key[..key.len() - item.key.len()]);
    RangePage::write_end(&mut body, last, fields, &[Range::ALL]);
    let count = u32::try_from(rows.len()).expect("fewer than the servers returned");
    let (status, more) = (Status::Ok, last.is_some());
    sink(scan.tag, Ok(Answer { status, more, count, ttl_high: 0, number, body: &body }));
}
