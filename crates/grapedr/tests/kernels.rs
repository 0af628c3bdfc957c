//! Kernels on the simulated machine against the reference.

use sprat_formula::{Arithmetic, Column, Inputs, Judgement, Output, Precision, Program, READY, ready, reference};
use sprat_grapedr::{Run, Shape, compile, run};

struct Numbers(u64);

impl Numbers {
    /// From -1 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 32).unwrap()) / f64::from(u32::MAX) * 2.0 - 1.0
    }

    /// A column for each field: what are masses and widths is above 0.
    fn columns(&mut self, fields: &[sprat_formula::Field], count: usize) -> Vec<Vec<f64>> {
        fields
            .iter()
            .map(|field| {
                (0..count)
                    .map(|at| match field.name.as_str() {
                        "mj" | "hi" => 1.0 + self.next() / 4.0,
                        "ni" | "nj" => f64::from(u32::try_from(at).unwrap()),
                        _ => f64::from(self.next() as f32),
                    })
                    .collect()
            })
            .collect()
    }
}

fn program(name: &str, precision: Precision) -> Program {
    sprat_formula::Kernel::parse(ready(name).unwrap().text, precision).unwrap().program
}

fn both(program: &Program, ni: usize, nj: usize, shape: Shape) -> (Run, Judgement) {
    let mut numbers = Numbers(1);
    let (i, j) = (numbers.columns(program.i(), ni), numbers.columns(program.j(), nj));
    let (i, j) = (columns(&i), columns(&j));
    let inputs = Inputs::new(program, i, j, &vec![None; program.constants().len()]).unwrap();
    (run(&compile(program).unwrap(), &inputs, shape, None), reference(program, &inputs, Arithmetic::Wide))
}

fn columns(all: &[Vec<f64>]) -> Vec<Column<'_>> {
    all.iter().map(|numbers| Column::from(&numbers[..])).collect()
}

/// The greatest error of sums relative to what was added up, of other numbers relative to themselves.
fn error(run: &Run, judgement: &Judgement) -> f64 {
    let mut most: f64 = 0.0;
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
            let scale = judgement.magnitudes[at].get(i).copied().unwrap_or(their.abs());
            if our != their {
                let e = (our - their).abs() / scale;
                most = if e.is_nan() { f64::NAN } else { most.max(e) };
            }
        }
    }
    most
}

#[test]
fn survey() {
    for ready in READY {
        for precision in [Precision::F32, Precision::F64] {
            let program = program(ready.name, precision);
            let kernel = compile(&program).unwrap();
            let (run, judgement) = both(&program, 200, 150, Shape::DESIGN);
            println!(
                "{} {precision:?}: {} steps, {} instr, error {:e}",
                ready.name,
                kernel.steps(),
                kernel.listing().body.len(),
                error(&run, &judgement)
            );
            if ready.name == "gravity" && precision == Precision::F32 {
                println!("{}", kernel.listing());
            }
        }
    }
}
