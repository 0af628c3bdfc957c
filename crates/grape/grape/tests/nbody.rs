//! Compares simulations with known results.
#![allow(missing_docs, reason = "a test is no library")]

use sprat_grape::nbody::{
    Bodies, Gravity, Scheme, Simulation, at, picture, plummer, read_snapshot, write_snapshot,
};
use sprat_grape::{ALONE, Engine, Error, Precision, Shape};
use std::f64::consts::PI;

/// Returns two bodies, each with half of the mass, on an orbit of eccentricity 0.5 and semi-major
/// axis 1. The period of the orbit is 2 pi.
fn two() -> Bodies {
    // At apocentre r = 1.5 and v = sqrt((1 - 0.5) / 1.5).
    let (r, v) = (0.75, 0.5 * (0.5_f64 / 1.5).sqrt());
    let zero = || vec![0.0; 2];
    Bodies::new(vec![0.5; 2], [vec![r, -r], zero(), zero()], [zero(), vec![v, -v], zero()])
        .expect("two bodies")
}

fn run(
    engine: &Engine,
    precision: Precision,
    softening: f64,
    bodies: Bodies,
    scheme: Scheme,
) -> Simulation<'static> {
    let gravity =
        Gravity::new(engine, precision, softening, &ALONE).expect("kernels that are ready");
    Simulation::new(gravity, bodies, scheme).expect("a step")
}

fn go(run: &mut Simulation<'_>, until: f64) {
    while !run.step(until).expect("time goes on") {}
}

#[test]
fn an_orbit_closes() {
    // According to the schemes' orders, half the step gives a quarter or a sixteenth of the error.
    for (scheme, bound) in
        [(Scheme::Leapfrog { step: 2e-3 }, 1e-4), (Scheme::Hermite { eta: 1e-4 }, 1e-8)]
    {
        let mut run = run(&Engine::default(), Precision::F64, 1e-7, two(), scheme);
        go(&mut run, 2.0 * PI);
        let (begin, end) = (two(), run.bodies());
        for body in 0..2 {
            let (from, to) = (at(&begin.position, body), at(&end.position, body));
            let miss = (0..3).map(|axis| (from[axis] - to[axis]).abs()).fold(0.0, f64::max);
            assert!(miss < bound, "{scheme:?}: {miss:e} after {} steps", run.steps());
        }
        assert!((run.time() - 2.0 * PI).abs() < 1e-15);
    }
}

#[test]
fn schemes_have_their_order() {
    let miss = |scheme| {
        let mut run = run(&Engine::default(), Precision::F64, 1e-7, two(), scheme);
        go(&mut run, 2.0 * PI);
        let (from, to) = (at(&two().position, 0), at(&run.bodies().position, 0));
        (0..3).map(|axis| (from[axis] - to[axis]).abs()).fold(0.0, f64::max)
    };
    let second = miss(Scheme::Leapfrog { step: 0.008 }) / miss(Scheme::Leapfrog { step: 0.004 });
    assert!((3.0..5.0).contains(&second), "{second}");
    // Steps are proportional to the square root of eta: a sixteenth of eta gives a quarter of the
    // step.
    let fourth = miss(Scheme::Hermite { eta: 0.0064 }) / miss(Scheme::Hermite { eta: 0.0004 });
    assert!((100.0..600.0).contains(&fourth), "{fourth}");
}

#[test]
fn a_cluster_is_in_equilibrium() {
    // The energy of many bodies is close to the model's.
    let many = plummer(16_384, 1).expect("a cluster");
    let many = run(&Engine::default(), Precision::F64, 1e-3, many, Scheme::Leapfrog { step: 1.0 });
    let many = many.conserved().expect("energies");
    assert!((many.energy() + 0.25).abs() < 0.01, "{many:?}");
    assert!((-2.0 * many.kinetic / many.potential - 1.0).abs() < 0.03, "not in balance: {many:?}");

    let bodies = plummer(1024, 1).expect("a cluster");
    assert_eq!(bodies, plummer(1024, 1).expect("the same"));
    assert_ne!(bodies, plummer(1024, 2).expect("another"));
    let mut run =
        run(&Engine::default(), Precision::F64, 1.0 / 256.0, bodies, Scheme::Hermite { eta: 0.01 });
    let begin = run.conserved().expect("energies");
    go(&mut run, 0.5);
    let end = run.conserved().expect("energies");
    let drift = (end.energy() - begin.energy()).abs() / begin.energy().abs();
    assert!(drift < 1e-6, "{drift:e} in {} steps", run.steps());
    for axis in 0..3 {
        assert!(end.momentum[axis].abs() < 1e-13, "{end:?}");
        assert!((end.angular[axis] - begin.angular[axis]).abs() < 1e-7, "{begin:?} {end:?}");
    }
}

#[test]
fn engines_agree() {
    let bodies = plummer(64, 3).expect("a cluster");
    let after = |engine: &Engine, precision| {
        let mut run =
            run(engine, precision, 0.05, bodies.clone(), Scheme::Leapfrog { step: 1.0 / 64.0 });
        go(&mut run, 0.125);
        run.bodies().clone()
    };
    let judge = after(&Engine::Reference, Precision::F64);
    let shape = Shape::new(1, 500e6).expect("a chip");
    for (engine, precision, bound) in [
        (Engine::default(), Precision::F64, 1e-13),
        (Engine::default(), Precision::F32, 1e-5),
        (Engine::GrapeDr(shape), Precision::F32, 1e-5),
        (Engine::GrapeDr(shape), Precision::F64, 1e-12),
    ] {
        let other = after(&engine, precision);
        for (one, two) in judge.position.iter().flatten().zip(other.position.iter().flatten()) {
            assert!((one - two).abs() < bound, "{engine:?} {precision:?}: {one} {two}");
        }
    }
}

/// A body does not attract itself. So the orbit closes on every engine even without softening, or
/// with a softening whose square underflows to 0.
#[test]
fn bodies_do_not_attract_themselves() {
    let scheme = Scheme::Hermite { eta: 1e-3 };
    for (engine, precision, softening, bound) in [
        (Engine::default(), Precision::F64, 0.0, 1e-6),
        (Engine::default(), Precision::F64, 1e-200, 1e-6),
        (Engine::default(), Precision::F32, 0.0, 1e-2),
        (Engine::default(), Precision::F32, 1e-30, 1e-2),
        (Engine::Reference, Precision::F64, 0.0, 1e-6),
    ] {
        let mut run = run(&engine, precision, softening, two(), scheme);
        let begin = run.conserved().expect("energies");
        // Each half of the mass is at a distance of 1.5 from the other.
        assert!((begin.potential + 0.25 / 1.5).abs() < 1e-15, "{engine:?} {softening}: {begin:?}");
        go(&mut run, 2.0 * PI);
        let (from, to) = (at(&two().position, 0), at(&run.bodies().position, 0));
        let miss = (0..3).map(|axis| (from[axis] - to[axis]).abs()).fold(0.0, f64::max);
        assert!(
            miss < bound,
            "{engine:?} {precision:?} {softening}: {miss:e} after {} steps",
            run.steps()
        );
    }
    let [one, two] = [Engine::Reference, Engine::GrapeDr(Shape::DESIGN)].map(|engine| {
        let mut run = run(&engine, Precision::F64, 0.0, two(), scheme);
        go(&mut run, 0.01);
        at(&run.bodies().velocity, 0)
    });
    assert!(
        (0..3).all(|axis| (one[axis] - two[axis]).abs() < 1e-14) && one[0] < -1e-3,
        "{one:?} {two:?}"
    );
}

/// Accelerations of bodies at rest do not change yet. The first step must be short nevertheless.
#[test]
fn bodies_at_rest_fall() {
    let zero = || vec![0.0; 2];
    let two =
        Bodies::new(vec![0.5; 2], [vec![0.5, -0.5], zero(), zero()], [zero(), zero(), zero()])
            .expect("two");
    let mut run = run(&Engine::default(), Precision::F64, 0.0, two, Scheme::Hermite { eta: 0.01 });
    let begin = run.conserved().expect("energies").energy();
    assert!((begin + 0.25).abs() < 1e-15, "{begin}");
    go(&mut run, 0.75);
    let drift = (run.conserved().expect("energies").energy() - begin).abs();
    // Two bodies with a total mass of 1 and a reduced mass of 1/8, at 0.75 of the time of free
    // fall, which is pi / (2 sqrt 2).
    assert!(drift < 1e-6 && run.steps() > 20, "{drift:e} in {} steps", run.steps());
}

#[test]
fn bodies_at_one_position_are_named() {
    let three = || {
        let x = vec![0.0, 1.0, 0.0];
        let zero = || vec![0.0; 3];
        Bodies::new(vec![1.0; 3], [x, zero(), zero()], [zero(), zero(), zero()])
            .expect("three bodies")
    };
    for scheme in [Scheme::Hermite { eta: 0.01 }, Scheme::Leapfrog { step: 0.01 }] {
        for precision in [Precision::F32, Precision::F64] {
            let gravity =
                Gravity::new(&Engine::default(), precision, 0.0, &ALONE).expect("kernels");
            let met = Simulation::new(gravity, three(), scheme).map(drop);
            assert!(matches!(met, Err(Error::Met { first: 0, second: 2 })), "{scheme:?}: {met:?}");
        }
        // With softening the bodies pass each other.
        go(&mut run(&Engine::default(), Precision::F64, 0.1, three(), scheme), 0.1);
    }
    // The bodies are not at the same position, but so close that `f32` overflows.
    let zero = || vec![0.0; 2];
    let close =
        Bodies::new(vec![1.0; 2], [vec![0.0, 1e-25], zero(), zero()], [zero(), zero(), zero()])
            .expect("two");
    let gravity = Gravity::new(&Engine::default(), Precision::F32, 0.0, &ALONE).expect("kernels");
    let pulled = Simulation::new(gravity, close, Scheme::Leapfrog { step: 0.01 }).map(drop);
    assert!(matches!(pulled, Err(Error::Pull { body: 0 })), "{pulled:?}");
}

#[test]
fn snapshots_are_read_back_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, bodies) = (folder.path().join("s.npy"), plummer(100, 5).expect("a cluster"));
    write_snapshot(&path, &bodies).expect("written");
    assert_eq!(read_snapshot(&path).expect("read"), bodies);
    let svg = picture(&bodies, "t < 1 & more");
    assert!(svg.contains("t &lt; 1 &amp; more") && svg.matches("<circle").count() >= 90, "{svg}");
}

#[test]
fn invalid_bodies_and_steps_are_errors() {
    let zero = || [vec![0.0], vec![0.0], vec![0.0]];
    let none = Bodies::new(Vec::new(), [const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    assert!(matches!(none, Err(Error::Bodies { count: 0, .. })));
    let short = Bodies::new(vec![1.0], [vec![0.0], vec![], vec![0.0]], zero());
    assert!(matches!(short, Err(Error::Lengths { name: "y", len: 0, masses: 1 })));
    let nowhere = Bodies::new(vec![1.0], [vec![0.0], vec![0.0], vec![f64::NAN]], zero());
    assert!(matches!(nowhere, Err(Error::NotFinite { name: "z", body: 0, .. })));
    for softening in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            Gravity::new(&Engine::Reference, Precision::F64, softening, &ALONE),
            Err(Error::Softening(_))
        ));
    }
    let gravity = Gravity::new(&Engine::Reference, Precision::F64, 0.1, &ALONE).expect("kernels");
    assert!(matches!(
        Simulation::new(gravity, two(), Scheme::Leapfrog { step: 0.0 }),
        Err(Error::Step(_))
    ));
    // A single body moves uniformly.
    let alone = Bodies::new(vec![1.0], zero(), [vec![1.0], vec![0.0], vec![0.0]]).expect("one");
    let mut run =
        run(&Engine::Reference, Precision::F64, 0.1, alone, Scheme::Hermite { eta: 0.01 });
    go(&mut run, 2.0);
    assert_eq!(at(&run.bodies().position, 0), [2.0, 0.0, 0.0]);
}
