//! Compares kernels on the simulated machine with the reference implementation.

use sprat_formula::{
    Arithmetic, Column, Inputs, Output, Precision, Program, READY, ReferenceOutput, ready,
    reference,
};
use sprat_grapedr::{
    CompileError, Published, RunResult, Shape, TraceRequest, compile, published, rate, run,
};

struct Numbers(u64);

impl Numbers {
    /// Returns the next number, from -1 to 1.
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 32).unwrap()) / f64::from(u32::MAX) * 2.0 - 1.0
    }

    /// Returns a column of random numbers for each field. Masses and widths are positive.
    fn columns(&mut self, fields: &[sprat_formula::Field], count: usize) -> Vec<Vec<f64>> {
        fields
            .iter()
            .map(|field| {
                (0..count)
                    .map(|at| match field.name.as_str() {
                        "mj" | "hi" => 1.0 + self.next() / 4.0,
                        "ni" | "nj" => f64::from(u32::try_from(at).unwrap()),
                        _ => (self.next() * 1e6).round() / f64::from(1 << 20),
                    })
                    .collect()
            })
            .collect()
    }
}

fn program(name: &str, precision: Precision) -> Program {
    sprat_formula::Kernel::parse(ready(name).unwrap().text, precision).unwrap().program
}

fn both(program: &Program, ni: usize, nj: usize, shape: Shape) -> (RunResult, ReferenceOutput) {
    let mut numbers = Numbers(1);
    let (i, j) = (numbers.columns(program.i(), ni), numbers.columns(program.j(), nj));
    let (i, j) = (columns(&i), columns(&j));
    let inputs = Inputs::new(program, i, j, &vec![None; program.constants().len()]).unwrap();
    (
        run(&compile(program).unwrap(), &inputs, shape, None),
        reference(program, &inputs, Arithmetic::Wide),
    )
}

fn columns(all: &[Vec<f64>]) -> Vec<Column<'_>> {
    all.iter().map(|numbers| Column::from(&numbers[..])).collect()
}

/// Returns the greatest error. Errors of sums are relative to the magnitude of their terms. Errors
/// of a vector's parts are relative to the greatest part, and other errors to the number itself.
fn error(program: &Program, run: &RunResult, judgement: &ReferenceOutput) -> f64 {
    let mut most: f64 = 0.0;
    let vector =
        |at: usize| program.results()[at].name.trim_end_matches(['x', 'y', 'z']).to_owned();
    let added = |at: usize, i: usize| {
        let parts = (0..judgement.magnitudes.len()).filter(|&part| vector(part) == vector(at));
        parts.filter_map(|part| judgement.magnitudes[part].get(i).copied()).reduce(f64::max)
    };
    for (at, (ours, theirs)) in run.outputs.iter().zip(&judgement.outputs).enumerate() {
        let numbers = |output: &Output| -> Vec<f64> {
            match output {
                Output::F32(all) => all.iter().map(|&number| f64::from(number)).collect(),
                Output::F64(all) => all.clone(),
                _ => vec![],
            }
        };
        let (ours, theirs) = (numbers(ours), numbers(theirs));
        for (i, (&our, &their)) in ours.iter().zip(&theirs).enumerate() {
            let scale = added(at, i).unwrap_or(their.abs());
            let error = (our - their).abs() / scale;
            if our != their && (error > most || error.is_nan()) {
                most = if error.is_nan() { f64::INFINITY } else { error };
            }
        }
    }
    most
}

/// Limits of the errors. Short words have one bit more than `f32`, and their sums are long. Long
/// words have eight bits more than `f64`.
const SHORT: f64 = 1e-6;
const LONG: f64 = 1e-14;

#[test]
fn ready_kernels_agree_with_the_reference() {
    for ready in READY {
        for (precision, tolerance) in [(Precision::F32, SHORT), (Precision::F64, LONG)] {
            let program = program(ready.name, precision);
            for (ni, nj, shape) in
                [(200, 150, Shape::DESIGN), (5, 333, Shape::DEPLOYED), (2100, 60, Shape::DESIGN)]
            {
                let (run, judgement) = both(&program, ni, nj, shape);
                let error = error(&program, &run, &judgement);
                assert!(
                    error <= tolerance,
                    "{} {precision:?} of {ni} x {nj}: {error:e}",
                    ready.name
                );
                for (ours, theirs) in run.outputs.iter().zip(&judgement.outputs) {
                    assert!(
                        !matches!(ours, Output::Index(_) | Output::Bool(_)) || ours == theirs,
                        "{}",
                        ready.name
                    );
                }
            }
        }
    }
}

#[test]
fn published_kernels_take_no_more_steps() {
    for row in published().unwrap() {
        let Published { name, steps, flops, rate: theirs } = row.published;
        assert!(
            row.short_steps <= steps,
            "{name}: {} steps, {steps} were published",
            row.short_steps
        );
        assert!(
            (rate(flops, steps) - theirs as f64).abs() < 1.0,
            "{name}: {} follows",
            rate(flops, steps)
        );
        assert!(row.short_rate >= theirs as f64 && row.long_steps > row.short_steps);
    }
}

/// Kernels run with various numbers of i and j, including none.
#[test]
fn counts_of_all_sizes() {
    let program = program("gravity", Precision::F64);
    for (ni, nj) in [(0, 5), (5, 0), (0, 0), (1, 1), (128, 16), (129, 17), (1, 4097), (2049, 1)] {
        let (run, judgement) = both(&program, ni, nj, Shape::DESIGN);
        assert!(error(&program, &run, &judgement) <= LONG, "{ni} x {nj}");
        assert!(
            run.outputs.iter().all(|output| matches!(output, Output::F64(all) if all.len() == ni))
        );
    }
}

/// Blocks that hold the same i process different j, so fewer i take less time.
#[test]
fn few_i_are_held_by_many_blocks() {
    let program = program("gravity", Precision::F32);
    let steps = compile(&program).unwrap().steps();
    let cycles =
        |ni, chips| both(&program, ni, 1600, Shape::new(chips, 5e8).unwrap()).0.timing.loop_cycles;
    assert_eq!(cycles(2048, 1), steps * 4 * 1600);
    assert_eq!(cycles(128, 1), steps * 4 * 100);
    assert_eq!(cycles(129, 1), steps * 4 * 200);
    assert_eq!(cycles(128, 4), steps * 4 * 25);
}

#[test]
fn a_watched_particle_shows_its_values() {
    let program = program("gravity", Precision::F64);
    let (i, j) = (
        [vec![0.5; 140], vec![0.25; 140], vec![0.0; 140]],
        [vec![1.0], vec![2.0], vec![3.0], vec![1.0]],
    );
    let inputs = Inputs::new(&program, columns(&i), columns(&j), &[None]).unwrap();
    let kernel = compile(&program).unwrap();
    let run = run(&kernel, &inputs, Shape::DESIGN, Some(TraceRequest { i: 133, limit: 1000 }));
    let (lane, trace) = run.watched.expect("watched");
    let listing = kernel.listing();
    assert_eq!(trace.entries().len(), listing.init.len() + listing.body.len());
    let first = &trace.entries()[listing.init.len()];
    assert_eq!(first.instruction, listing.body[0]);
    assert_eq!((lane, first.values[0][lane].to_f64()), (1, 0.5));
}

/// Returns the result of a kernel's text for one i and the given j.
fn one(text: &str, j: &[f64]) -> Output {
    let program = sprat_formula::Kernel::parse(text, Precision::F64).unwrap().program;
    let inputs = Inputs::new(&program, vec![], vec![Column::from(j)], &[]).unwrap();
    run(&compile(&program).unwrap(), &inputs, Shape::DESIGN, None).outputs.remove(0)
}

#[test]
fn nan_and_infinity_follow_the_language() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let value =
        |expression: &str, x: f64| match one(&format!("VARJ x\nVARF r\nr += {expression}\n"), &[x])
        {
            Output::F64(all) => all[0],
            other => panic!("{other:?}"),
        };
    for (expression, x, expected) in [
        ("rsqrt(x)", 0.0, inf),
        ("rsqrt(x)", inf, 0.0),
        ("rsqrt(x)", -1.0, nan),
        ("rsqrt(x)", nan, nan),
        ("rsqrt(x)", -inf, nan),
        ("sqrt(x)", 0.0, 0.0),
        ("sqrt(x)", inf, inf),
        ("sqrt(x)", -1.0, nan),
        ("sqrt(x)", nan, nan),
        ("sqrt(x)", 9.0, 3.0),
        ("1 / x", 0.0, inf),
        ("1 / x", -inf, 0.0),
        ("1 / x", nan, nan),
        ("x / x", 0.0, nan),
        ("1 / x", -4.0, -0.25),
        ("exp(x)", inf, inf),
        ("exp(x)", -inf, 0.0),
        ("exp(x)", nan, nan),
        ("exp(x)", 710.0, inf),
        ("exp(x)", -745.0, 0.0),
        ("exp(x)", 0.0, 1.0),
    ] {
        let given = value(expression, x);
        assert!(
            given == expected || given.is_nan() && expected.is_nan(),
            "{expression} of {x}: {given}"
        );
    }
    let j = [3.0, nan, 1.0, 2.0, 1.0];
    assert_eq!(one("VARJ x\nVARF r\nr min= x\n", &j), Output::F64(vec![1.0]));
    assert_eq!(one("VARJ x\nVARF r\nr argmin= x\n", &j), Output::Index(vec![2]));
    assert_eq!(one("VARJ x\nVARF r\nr argmax= x\n", &j), Output::Index(vec![0]));
    assert_eq!(one("VARJ x\nVARF r\nr argmin= x\n", &[nan, inf]), Output::Index(vec![-1]));
}

/// Roots of all normal numbers, and quotients by them, are right from the least to the greatest
/// number.
#[test]
fn roots_and_quotients_are_right_at_the_ends_of_the_range() {
    let exponents = [
        -1022, -1021, -1020, -513, -1, 0, 1, 511, 512, 513, 514, 960, 1000, 1020, 1021, 1022, 1023,
    ];
    let factors = [1.0, 1.25, std::f64::consts::SQRT_2, 1.999, 2.0 - f64::EPSILON];
    let root = f64::sqrt;
    for (exponent, factor) in
        exponents.into_iter().flat_map(|exponent| factors.map(|factor| (exponent, factor)))
    {
        let x = factor * 2.0_f64.powi(exponent);
        let mut cases = vec![
            ("sqrt(x)", root(x)),
            ("rsqrt(x)", 1.0 / root(x)),
            ("rsqrt(x, 1e-4)", 1.0 / root(x)),
        ];
        cases.extend([
            ("x / x", 1.0),
            ("-1 / x", -1.0 / x),
            ("1e300 / x", 1e300 / x),
            ("1e-300 / x", 1e-300 / x),
        ]);
        cases.retain(|(_, right)| right.is_finite() && right.abs() >= f64::MIN_POSITIVE);
        cases.push(("inf / x", f64::INFINITY));
        for (expression, right) in cases {
            let Output::F64(found) = one(&format!("VARJ x\nVARF r\nr += {expression}\n"), &[x])
            else {
                panic!()
            };
            let bound = if expression.contains("1e-4") { 1e-4 } else { 2.0 * f64::EPSILON };
            let near = found[0] == right || (found[0] / right - 1.0).abs() <= bound;
            assert!(near, "{expression} of {x:e}: {:e} for {right:e}", found[0]);
        }
    }
    for x in [f32::MIN_POSITIVE, f32::MAX, 1.5, f32::from_bits(1)] {
        for (expression, right) in
            [("sqrt(x)", x.sqrt()), ("rsqrt(x)", 1.0 / x.sqrt()), ("1 / x", 1.0 / x)]
        {
            let text = format!("VARJ x: f32\nVARF r: f32\nr += {expression}\n");
            let Output::F32(found) = one(&text, &[f64::from(x)]) else { panic!() };
            let near = found[0] == right || (found[0] / right - 1.0).abs() <= 2.0 * f32::EPSILON;
            assert!(near, "{expression} of {x:e}: {:e} for {right:e}", found[0]);
        }
    }
}

#[test]
fn errors_say_which_memory_is_too_small() {
    let many: Vec<String> = (0..63).map(|at| format!("x{at}")).collect();
    let products: Vec<String> = many.iter().map(|name| format!("{name} * y")).collect();
    let text = format!(
        "VARI {}\nVARJ y\nVARF a, b\na += {}\nb += y\n",
        many.join(", "),
        products.join(" + ")
    );
    let program = sprat_formula::Kernel::parse(&text, Precision::F32).unwrap().program;
    assert_eq!(compile(&program).unwrap_err(), CompileError::Local);
    assert!(CompileError::Local.to_string().starts_with("local memory ran out"));
}

/// The kernel has more selections in progress than there are masks, and more values than registers.
/// The compiler still finds masks and locations.
#[test]
fn many_selections_share_few_masks() {
    let mut text = "VARI a\nVARJ b\nVARF r\n".to_owned();
    let names: Vec<String> = (0..40).map(|at| format!("v{at}")).collect();
    for (at, name) in names.iter().enumerate() {
        text += &format!("{name} = select(a < b + {at}, b * {at} + a, b - a / ({at} + 2 + b*b))\n");
    }
    text += &format!(
        "r += ({}) * ({})\n",
        names.join(" + "),
        names.iter().rev().cloned().collect::<Vec<_>>().join(" + ")
    );
    for (precision, tolerance) in [(Precision::F32, SHORT * 10.0), (Precision::F64, LONG)] {
        let program = sprat_formula::Kernel::parse(&text, precision).unwrap().program;
        let (run, judgement) = both(&program, 130, 40, Shape::DESIGN);
        assert!(error(&program, &run, &judgement) <= tolerance);
    }
}

/// More comparisons are ready at the same time than there are masks, but their users become ready
/// only after others have used masks. So each comparison must wait until its user is ready.
#[test]
fn masks_are_set_late() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut text =
        format!("VARI x\nVARJ y, {}\nVARF r\nlate = rsqrt(1 + x*x + y*y)\n", names.join(", "));
    for name in names {
        text += &format!("r += select(x < {name}, late, {name})\n");
    }
    for (precision, tolerance) in [(Precision::F32, SHORT), (Precision::F64, LONG)] {
        let program = sprat_formula::Kernel::parse(&text, precision).unwrap().program;
        let (run, judgement) = both(&program, 20, 30, Shape::DESIGN);
        assert!(error(&program, &run, &judgement) <= tolerance);
    }
}
