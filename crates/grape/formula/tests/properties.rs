//! Tests with random expressions. The reference computes from an expression's text what an
//! independent evaluator computes from its tree. Listings parse to the same program. Contracted
//! programs agree with the originals within rounding.

use proptest::prelude::*;
use sprat_formula::{Arithmetic, Column, Inputs, Kernel, Output, Precision, Program, reference};

/// An expression. It gives its text, and its value for given variables.
#[derive(Clone, Debug)]
enum Tree {
    Number(f64),
    Variable(usize),
    Unary(&'static str, Box<Tree>),
    Binary(&'static str, Box<Tree>, Box<Tree>),
    Select(&'static str, [Box<Tree>; 4]),
}

const VARIABLES: [&str; 4] = ["xi", "yi", "xj", "yj"];

impl Tree {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => format!("({number:?})"),
            Self::Variable(at) => VARIABLES[*at].to_owned(),
            Self::Unary("-", a) => format!("(-{})", a.text()),
            Self::Unary(name, a) => format!("{name}({})", a.text()),
            Self::Binary(name @ ("min" | "max"), a, b) => {
                format!("{name}({}, {})", a.text(), b.text())
            }
            Self::Binary(sign, a, b) => format!("({} {sign} {})", a.text(), b.text()),
            Self::Select(sign, [a, b, c, d]) => {
                format!("select({} {sign} {}, {}, {})", a.text(), b.text(), c.text(), d.text())
            }
        }
    }

    fn value(&self, variables: &[f64; 4]) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Variable(at) => variables[*at],
            Self::Unary(name, a) => {
                let a = a.value(variables);
                match *name {
                    "-" => -a,
                    "abs" => a.abs(),
                    "sqrt" => a.sqrt(),
                    "rsqrt" => 1.0 / a.sqrt(),
                    "exp" => a.exp(),
                    _ => unreachable!(),
                }
            }
            Self::Binary(name, a, b) => {
                let (a, b) = (a.value(variables), b.value(variables));
                match *name {
                    "+" => a + b,
                    "-" => a - b,
                    "*" => a * b,
                    "/" => a / b,
                    "min" if a < b => a,
                    "max" if a > b => a,
                    _ => b,
                }
            }
            Self::Select(sign, [a, b, c, d]) => {
                let (a, b) = (a.value(variables), b.value(variables));
                let holds = match *sign {
                    "<" => a < b,
                    ">" => a > b,
                    "<=" => a <= b,
                    ">=" => a >= b,
                    "==" => a == b,
                    _ => a != b,
                };
                if holds { c.value(variables) } else { d.value(variables) }
            }
        }
    }
}

impl Tree {
    /// Returns a bound on the magnitude of all intermediate values, if the variables are whole
    /// numbers of at most these magnitudes.
    fn bound(&self, sizes: &[f64; 4]) -> f64 {
        match self {
            Self::Number(number) => number.abs(),
            Self::Variable(at) => sizes[*at],
            Self::Unary(_, a) => a.bound(sizes),
            Self::Binary("*", a, b) => a.bound(sizes).max(1.0) * b.bound(sizes).max(1.0),
            Self::Binary(_, a, b) => a.bound(sizes) + b.bound(sizes),
            Self::Select(_, all) => all.iter().map(|tree| tree.bound(sizes)).fold(0.0, f64::max),
        }
    }
}

fn numbers() -> impl Strategy<Value = f64> {
    const SPECIAL: &[f64] = &[0.0, -0.0, 1.0, -1.0, 2.0, 0.25, 3.0, 1e-300, 1e300, 5e-324];
    prop_oneof![prop::sample::select(SPECIAL), -10.0..10.0_f64]
}

fn trees() -> impl Strategy<Value = Tree> {
    of(numbers(), &["-", "abs", "sqrt", "rsqrt", "exp"], &["+", "-", "*", "/", "min", "max"])
}

/// Generates expressions whose values stay whole numbers.
fn whole() -> impl Strategy<Value = Tree> {
    of((-3..4_i8).prop_map(f64::from), &["-", "abs"], &["+", "-", "*", "+", "-", "*", "min", "max"])
}

fn of(
    numbers: impl Strategy<Value = f64> + 'static,
    unary: &'static [&'static str],
    binary: &'static [&'static str],
) -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![numbers.prop_map(Tree::Number), (0..4_usize).prop_map(Tree::Variable)];
    leaf.prop_recursive(6, 60, 4, move |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        let unary = prop::sample::select(unary);
        let binary = prop::sample::select(binary);
        let compare = prop::sample::select(&["<", ">", "<=", ">=", "==", "!="][..]);
        let four = [boxed.clone(), boxed.clone(), boxed.clone(), boxed.clone()];
        prop_oneof![
            2 => (unary, boxed.clone()).prop_map(|(what, a)| Tree::Unary(what, a)),
            4 => (binary, boxed.clone(), boxed.clone())
                .prop_map(|(op, a, b)| Tree::Binary(op, a, b)),
            1 => (compare, four).prop_map(|(what, four)| Tree::Select(what, four)),
        ]
    })
}

fn given() -> impl Strategy<Value = f64> {
    const SPECIAL: &[f64] = &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    prop_oneof![4 => numbers(), 1 => prop::sample::select(SPECIAL)]
}

fn kernel(tree: &Tree, reduced: &str) -> Program {
    let text = format!("VARI xi, yi\nVARJ xj, yj\nVARF r\nr {reduced} {}", tree.text());
    Kernel::parse(&text, Precision::F64).unwrap_or_else(|error| panic!("{error}")).program
}

fn column(x: &f64) -> Column<'_> {
    Column::from(std::slice::from_ref(x))
}

fn run(program: &Program, [xi, yi, xj, yj]: &[f64; 4], arithmetic: Arithmetic) -> Output {
    let inputs =
        Inputs::new(program, vec![column(xi), column(yi)], vec![column(xj), column(yj)], &[])
            .unwrap();
    reference(program, &inputs, arithmetic).outputs.remove(0)
}

/// Returns whether two numbers have the same bits, or are both NaN.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn text_evaluates_like_its_tree(tree in trees(), x in [given(), given(), given(), given()]) {
        let by_hand = tree.value(&x);
        // The sum of a single number is that number except for the sign of 0. The minimum keeps the
        // sign, but skips NaN.
        let program = kernel(&tree, "+=");
        let Output::F64(found) = run(&program, &x, Arithmetic::Wide) else { panic!("of f64") };
        prop_assert!(
            same(found[0], by_hand + 0.0),
            "{} is {by_hand}, not {}\n{program}",
            tree.text(),
            found[0]
        );
        let Output::F64(least) = run(&kernel(&tree, "min="), &x, Arithmetic::Wide) else {
            panic!("of f64")
        };
        let expected = if by_hand.is_nan() { f64::INFINITY } else { by_hand };
        prop_assert!(
            same(least[0], expected),
            "{} is {by_hand}, not {}\n{program}",
            tree.text(),
            least[0]
        );
    }

    #[test]
    fn listings_parse_to_the_same_program(
        tree in trees(),
        precision in prop::sample::select(&[Precision::F32, Precision::F64][..]),
    ) {
        let text = format!(
            "VARI xi, yi: f32\nVARJ xj, yj\nVARF r: f64\nVARF v, s, t\nCONST v1 = \
                            -inf\nFLOPS 7\nr -= {0}\nr += v1\nv or= {0} < 1\ns argmax= {0}\nt \
                            argmin= 1",
            tree.text()
        );
        // Literals can exceed f32, which is an error.
        if let Ok(kernel) = Kernel::parse(&text, precision) {
            let listing = kernel.program.to_string();
            for other in [Precision::F32, Precision::F64] {
                let again = Kernel::parse(&listing, other)
                    .map_err(|error| TestCaseError::fail(format!("{error}\n{listing}")))?;
                prop_assert_eq!(&again.program, &kernel.program, "{}", &listing);
            }
        }
    }

    #[test]
    fn contracted_programs_agree_without_rounding(
        tree in whole(),
        x in [-3..4_i8, -3..4_i8, -3..4_i8, -3..4_i8],
    ) {
        let (x, sizes) = (x.map(f64::from), x.map(|x| f64::from(x).abs()));
        prop_assume!(tree.bound(&sizes) < 2.0_f64.powi(53));
        let program = kernel(&tree, "+=");
        let contracted = program.contracted();
        prop_assert!(contracted.nodes().len() <= program.nodes().len());
        prop_assert_eq!(contracted.contracted(), contracted.clone());
        let found = run(&contracted, &x, Arithmetic::Wide);
        prop_assert_eq!(
            found,
            Output::F64(vec![tree.value(&x) + 0.0]),
            "{}\n{}",
            program,
            contracted
        );
    }
}
