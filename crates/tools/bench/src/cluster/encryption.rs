//! The cost of encryption (sealing) for a read.

use anyhow::Result;
use sprat_client::Mode;

use crate::ours::{Members, Transport};
use crate::promises::{Findings, Settings, us};
use crate::scenarios::{self, Lab};
use crate::system::{System, own_folder};
use sprat_measure::goals::Goal;
use sprat_measure::target::Wait;

/// Lower limit on the rounds, since the cost is smaller than the difference between two rounds of
/// one system.
const ROUNDS: usize = 5;

/// Compares the latency of one client's reads over UDP with and without encryption. Server and
/// client spin.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let folder = own_folder(&settings.lab.setup.data, "members")?;
    let members = Members::issue(&settings.program, folder.path())?;
    let open = settings.sprat(Transport::Udp, Mode::Spin).named("open");
    let sealed = settings.sprat(Transport::Udp, Mode::Spin).sealed(members).named("sealed");
    let systems: [&dyn System; 2] = [&open, &sealed];
    let lab = Lab { rounds: settings.lab.rounds.max(ROUNDS), ..settings.lab.undisturbed() };
    let results = scenarios::read_latency(&lab, &systems, Wait::Spin)?;
    let read = |name| us(&results, name, 0.5);
    let (read_open, read_sealed) = (read(open.name()), read(sealed.name()));
    let more = read_sealed.zip(read_open).map(|(sealed, open)| sealed - open);
    findings.row(
        "100 B read over fast+udp, sealed minus open",
        more,
        None,
        "us",
        Goal::AtMost(1.0),
    );
    findings.row("the same, p50 sealed vs open", read_sealed, read_open, "us", Goal::Shown);
    let p99 = |name| us(&results, name, 0.99);
    findings.row(
        "the same, p99 sealed vs open",
        p99(sealed.name()),
        p99(open.name()),
        "us",
        Goal::Shown,
    );
    findings.results(results);
    Ok(())
}
