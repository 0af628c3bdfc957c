//! Tests of the kernel language: meaning and errors.

use sprat_formula::{
    Arithmetic, Column, Inputs, Kernel, Output, Precision, Reduction, Type, reference,
};

fn read(text: &str) -> Kernel {
    Kernel::parse(text, Precision::F64).unwrap_or_else(|error| panic!("{error}"))
}

/// Evaluates an expression of x and y in a kernel with one i and one j.
fn value(expression: &str, x: f64, y: f64) -> f64 {
    let text = format!("VARI x\nVARJ y\nVARF r\nr += {expression}");
    let outputs = run(&text, &[x], &[y]);
    let [Output::F64(found)] = &outputs[..] else { panic!("{outputs:?}") };
    found[0]
}

fn run(text: &str, x: &[f64], y: &[f64]) -> Vec<Output> {
    let kernel = read(text);
    let inputs =
        Inputs::new(&kernel.program, vec![Column::from(x)], vec![Column::from(y)], &[]).unwrap();
    reference(&kernel.program, &inputs, Arithmetic::Typed).outputs
}

fn error(text: &str) -> String {
    let error = Kernel::parse(text, Precision::F64).expect_err(text);
    error.to_string()
}

#[test]
fn operators_have_the_usual_precedence() {
    assert_eq!(value("1 + x * y", 2.0, 3.0), 7.0);
    assert_eq!(value("x - y - 1", 2.0, 3.0), -2.0);
    assert_eq!(value("x / y / 2", 3.0, 4.0), 0.375);
    assert_eq!(value("-x * y", 2.0, 3.0), -6.0);
    assert_eq!(value("x * -y", 2.0, 3.0), -6.0);
    assert_eq!(value("(x + y) * 2", 2.0, 3.0), 10.0);
    assert_eq!(value("x - -y", 2.0, 3.0), 5.0);
    assert_eq!(value("+x - (+y)", 2.0, 3.0), -1.0);
    assert_eq!(value("select(x < y and not x == 2 or y > 2, 1, 0)", 2.0, 3.0), 1.0);
    assert_eq!(value("select(x < y and not (x == 2 or y > 2), 1, 0)", 2.0, 3.0), 0.0);
    assert_eq!(value("select(x != y and x <= y and y >= x and y > x, x, y)", 2.0, 3.0), 2.0);
}

#[test]
fn functions_are_the_documented_ones() {
    assert_eq!(value("sqrt(x) + sqrt(4)", 9.0, 0.0), 5.0);
    assert_eq!(value("rsqrt(x)", 4.0, 0.0), 0.5);
    assert_eq!(value("powm32(x)", 4.0, 0.0), 0.125);
    assert_eq!(value("exp(x) * exp(0)", 0.0, 0.0), 1.0);
    assert_eq!(value("abs(x) + abs(-3)", -2.0, 0.0), 5.0);
    assert_eq!(value("min(x, y) + 10 * max(x, y)", 2.0, 3.0), 32.0);
    assert_eq!(value("select(x < y, inf, 0)", 1.0, 2.0), f64::INFINITY);
    assert_eq!(value("f64(f32(x))", 0.1, 0.0), f64::from(0.1_f32));
    assert!(value("x + nan", 0.1, 0.0).is_nan());
}

#[test]
fn statements_continue_in_parentheses_and_after_operators() {
    let long = "vari x\nVarJ y; VARF r, s # results\n/VARF t;;\nr += (x\n + y\n)\ns += x +\n y # \
                here\nt min= x; t min=\n y;";
    assert_eq!(run(long, &[1.0], &[2.0]), [3.0, 3.0, 1.0].map(|x| Output::F64(vec![x])));
    assert_eq!(
        error("VARI x\nVARF r\nr += x\n + 1").lines().next().unwrap(),
        "line 4, column 2: expected a statement such as `name = ...`, found `+`"
    );
}

#[test]
fn statements_of_one_result_are_one_contribution() {
    let sum = "VARI x\nVARJ y\nVARF r\nr += x\nr -= y\nr += 10";
    assert_eq!(run(sum, &[5.0], &[1.0, 2.0]), [Output::F64(vec![4.0 + 10.0 + 3.0 + 10.0])]);
    let least = "VARI x\nVARJ y\nVARF r\nr min= x\nr min= y";
    assert_eq!(run(least, &[5.0, 0.0], &[1.0, 2.0]), [Output::F64(vec![1.0, 0.0])]);
    assert_eq!(run(least, &[f64::NAN, 0.0], &[f64::NAN, 2.0]), [Output::F64(vec![2.0, 0.0])]);
    assert_eq!(
        run(least, &[3.0], &[f64::NAN]),
        [Output::F64(vec![3.0])],
        "what is not a number is passed over"
    );
    let greatest = "VARI x\nVARJ y\nVARF r\nr max= y\nr max= x";
    assert_eq!(run(greatest, &[3.0, f64::NAN], &[f64::NAN, 1.0]), [Output::F64(vec![3.0, 1.0])]);
    let all = "VARI x\nVARJ y\nVARF r, s\nr &= x < y\nr and= y < 9\ns |= x == y\ns or= y > 9";
    let found = run(all, &[1.0, 5.0], &[5.0, 6.0]);
    assert_eq!(found, [Output::Bool(vec![true, false]), Output::Bool(vec![false, true])]);
}

#[test]
fn reductions_of_nothing_and_of_nan() {
    let text = "VARI x\nVARJ y\nVARF a, b, c, d, e, f, g\na += y\nb min= y\nc max= y\nd and= y > \
                0\ne or= y > 0\nf argmin= y + x\ng argmax= y + x";
    let empty = run(text, &[1.0], &[]);
    let number = |x| Output::F64(vec![x]);
    let none =
        [number(0.0), number(f64::INFINITY), number(f64::NEG_INFINITY), Output::Bool(vec![true])];
    assert_eq!(empty[..4], none);
    assert_eq!(
        empty[4..],
        [Output::Bool(vec![false]), Output::Index(vec![-1]), Output::Index(vec![-1])]
    );
    let found = run(text, &[0.0], &[f64::NAN, 3.0, 3.0, 7.0, 7.0]);
    assert!(matches!(&found[0], Output::F64(sum) if sum[0].is_nan()));
    assert_eq!(found[1..4], [number(3.0), number(7.0), Output::Bool(vec![false])]);
    assert_eq!(
        found[4..],
        [Output::Bool(vec![true]), Output::Index(vec![1]), Output::Index(vec![3])]
    );
    let infinite = run(text, &[0.0], &[f64::INFINITY, f64::INFINITY]);
    assert_eq!(
        (&infinite[0], &infinite[5], &infinite[6]),
        (&number(f64::INFINITY), &Output::Index(vec![-1]), &Output::Index(vec![0]))
    );
}

#[test]
fn types_are_declared_inferred_or_default() {
    let types = |text: &str, precision| {
        let kernel = Kernel::parse(text, precision).unwrap_or_else(|error| panic!("{error}"));
        let results = kernel.program.results().iter();
        results.map(|result| kernel.program.type_of(result.contribution)).collect::<Vec<_>>()
    };
    let plain = "VARI x\nVARF r\nr += x * 0.1";
    assert_eq!(types(plain, Precision::F32), [Type::F32]);
    assert_eq!(types(plain, Precision::F64), [Type::F64]);
    let declared = "VARI x, y: f32\nVARJ z: f64\nVARF a, b\nVARF c, d: f32\na argmin= x\nb argmin= \
                    x + z\nc += x * y + 1e-3\nd += f32(z) + select(x < z, 1, 0)";
    assert_eq!(types(declared, Precision::F64), [Type::F32, Type::F64, Type::F32, Type::F32]);
    // A name of a literal is a literal.
    assert_eq!(
        types("VARI x: f32\nVARF r: f32\nthird = 1 / 3\nr += third * x", Precision::F64),
        [Type::F32]
    );
    assert_eq!(types("VARI x: f32\nVARF r: f64\nr += x", Precision::F32), [Type::F64]);
}

#[test]
fn accuracies_become_bits() {
    let bits = |call: &str| {
        let kernel = read(&format!("VARI x\nVARF r\nr += {call}"));
        kernel
            .program
            .to_string()
            .lines()
            .find_map(|line| line.strip_prefix("v1 = ").map(str::to_owned))
            .unwrap()
    };
    assert_eq!(bits("rsqrt(x)"), "rsqrt(x)");
    assert_eq!(bits("rsqrt(x, 1e-4)"), "rsqrt(x, 6.103515625e-5)");
    assert_eq!(bits("rsqrt(x, 0.5)"), "rsqrt(x, 0.5)");
    assert_eq!(bits("rsqrt(x, 1e-30)"), "rsqrt(x)");
}

#[test]
fn declarations_keep_their_order() {
    let kernel = read(
        "VARJ b\nVARI a\nVARF r: f32\nCONST k = -2, l: f32\nFLOPS 3\nVARJ c: f32\nr max= 1\nunused \
         = a * k",
    );
    let program = &kernel.program;
    assert_eq!(program.j().iter().map(|j| j.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(
        (program.flops(), program.constants()[0].default, program.constants()[1].default),
        (Some(3), Some(-2.0), None)
    );
    assert_eq!((program.results()[0].reduction, program.nodes().len()), (Reduction::Max, 1));
    let unused: Vec<_> = kernel
        .unused
        .iter()
        .map(|unused| (unused.name.as_str(), unused.line, unused.column))
        .collect();
    assert_eq!(unused, [("b", 1, 6), ("l", 4, 15), ("c", 6, 6), ("unused", 8, 1)]);
}

#[test]
fn errors_show_their_position() {
    let text = "VARI xi\nVARJ xj, mj\nVARF pot\nrinv = rsqrt(xj - xi)\n\tpot -= mj * rinf";
    assert_eq!(
        error(text),
        "line 5, column 14: `rinf` is not known; did you mean `rinv`?\n    \
         5 |  pot -= mj * rinf\n\x20     |              ^^^^"
    );
    let long = format!("VARI x\nVARF r\nr += {}oops + x", "x + ".repeat(100));
    let shown = error(&long);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "line 3, column 406: `oops` is not known");
    let (at, len) = (lines[2].find('^').unwrap(), lines[2].matches('^').count());
    assert_eq!(&lines[1][at..at + len], "oops");
}

#[test]
fn each_error_names_what_was_expected() {
    let declared = "VARI x\nVARJ y\nVARF r\nCONST k\n";
    let cases = [
        (
            "r += x +",
            "5:9 expected a value: a name, a number, a function or `(`, found the end of the kernel",
        ),
        (
            "r += (x + y",
            "5:12 expected `)` for the `(` of line 5, column 6, found the end of the kernel",
        ),
        (
            "r += sqrt(x\n* y; r += 1",
            "6:4 expected `)` for the `(` of line 5, column 10, found the end of the statement",
        ),
        ("r += x y", "5:8 expected an operator, or the end of the statement, found `y`"),
        ("r += x)", "5:7 expected an operator, or the end of the statement, found `)`"),
        ("r += 2x", "5:6 expected a number such as 2, 0.5 or 1e-4"),
        ("r += 1.2.3", "5:6 expected a number such as 2, 0.5 or 1e-4"),
        ("r += 1e999", "5:6 this number is beyond f64; infinity is written `inf`"),
        ("r += f32(1e99)", "5:10 this number is beyond f32; infinity is written `inf`"),
        ("r += x ^ 2", "5:8 unexpected '^'"),
        ("r += é", "5:6 unexpected 'é'"),
        ("r *= x", "5:3 expected `=`, or a result's `+=` and its like, found `*`"),
        (
            "r = x",
            "5:3 `r` is a result: expected `+=`, `-=`, `max=`, `min=`, `and=`, `or=`, `argmin=` or \
             `argmax=`",
        ),
        ("a += x", "5:1 `a` is not known; did you mean `k`?"),
        ("a = x; a += y", "5:10 `a` is not a result: only names of VARF are reduced; expected `=`"),
        ("x += y", "5:1 `x` is given (VARI) and cannot be assigned"),
        ("k = y", "5:1 `k` is given (CONST) and cannot be assigned"),
        ("a = x; a = y", "5:8 `a` is already defined in line 5, column 1: take another name"),
        ("a = r", "5:5 `r` is a result, known only after all j: its value cannot be used here"),
        (
            "sqrt = x",
            "5:1 `sqrt` is a word of the language, in any case of letters: take another name",
        ),
        ("r += Min", "5:9 `min` is a function: expected `(` after it, found the end of the kernel"),
        ("r += sqr(x)", "5:6 there is no function `sqr`; did you mean `sqrt`?"),
        ("r += sqrt(x, y)", "5:6 `sqrt` takes one number, found 2"),
        ("r += min(x)", "5:6 `min` takes two numbers, found 1"),
        ("r += select()", "5:6 `select` takes a comparison and two numbers, found 0"),
        (
            "r += rsqrt(x, y)",
            "5:15 expected a relative error between 0 and 1, such as 1e-4, as a number",
        ),
        (
            "r += rsqrt(x, 2)",
            "5:15 expected a relative error between 0 and 1, such as 1e-4, as a number",
        ),
        ("r += x < y", "5:6 expected a number, found a comparison"),
        ("r += select(x, y, 1)", "5:13 expected a comparison, found a number"),
        ("r and= x", "5:8 expected a comparison, found a number"),
        (
            "r += select(x < y < 1, 1, 2)",
            "5:19 comparisons do not chain: expected `a < b and b < c`",
        ),
        (
            "r += x; r min= y",
            "5:11 `r` is reduced by `+=` in line 5, here by `min=`: a result has one reduction",
        ),
        (
            "r argmin= x; r argmin= y",
            "5:16 `r` has its `argmin=` in line 5 already: a result has one of these",
        ),
        ("r += x; VARI z", "5:9 VARI must come before the first statement"),
        (
            "VARF s: f32; r += x; s += y",
            "5:27 `s` is f32 and this is f64: expected `f32(...)` around it, or `VARF s: f64`",
        ),
        (
            "VARF s: f32; r += x; s argmin= y",
            "5:24 `s` was declared f32, and `argmin=` gives a place among j: expected a VARF \
             without a type",
        ),
        (
            "VARF s; r += x",
            "5:6 nothing contributes to the result `s`: expected a statement such as `s += ...`",
        ),
        ("VARI x", "5:6 `x` is already defined in line 1, column 6: take another name"),
        ("VARI z: f16", "5:9 expected `f32` or `f64`, found `f16`"),
        ("VARI 3", "5:6 expected a name, found `3`"),
        ("CONST c = x", "5:11 expected a number, found `x`"),
        ("FLOPS 1.5", "5:7 expected a whole number from 1 to 1000000"),
        ("r += -(x < y)", "5:7 expected a number, found a comparison"),
    ];
    for (statement, expected) in cases {
        let error =
            Kernel::parse(&format!("{declared}{statement}"), Precision::F64).expect_err(statement);
        assert_eq!(
            format!("{}:{} {}", error.line, error.column, error.problem),
            expected,
            "{statement}"
        );
    }
    assert_eq!(
        error("x = 1").lines().next().unwrap(),
        "line 1, column 1: the kernel has no result: expected `VARF` with a name"
    );
    assert_eq!(
        error("").lines().next().unwrap(),
        "line 1, column 1: the kernel has no result: expected `VARF` with a name"
    );
}

#[test]
fn limits_are_enforced() {
    let problem =
        |text: &str| error(text).lines().next().unwrap().split_once(": ").unwrap().1.to_owned();
    let declared = "VARI x\nVARF r\n";
    let deep = |depth: usize| format!("{declared}r += {}x{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Kernel::parse(&deep(64), Precision::F64).is_ok());
    assert_eq!(
        problem(&deep(65)),
        "expressions are nested deeper than 64: give a part of it a name"
    );
    assert_eq!(
        problem(&format!("{declared}r += {}x", "-".repeat(100))),
        "expressions are nested deeper than 64: give a part of it a name"
    );
    assert_eq!(
        problem(&"#".repeat((1 << 20) + 1)),
        "the kernel has 1048577 bytes, 1048576 are the limit"
    );
    assert_eq!(problem(&format!("VARI {}", "x".repeat(65))), "a name of more than 64 characters");
    let many: Vec<String> = (0..65).map(|at| format!("x{at}")).collect();
    assert_eq!(problem(&format!("VARI {}", many.join(","))), "more than 64 names in VARI");
    let sums = (0..5000).fold(format!("{declared}r += x"), |text, at| text + &format!("+ {at}"));
    assert_eq!(problem(&sums), "more than 4096 values are computed up to here");
    let statements = format!("{declared}{}", "r += x;".repeat(8192));
    assert_eq!(problem(&statements), "more than 8192 statements");
    // Long, but not deeply nested.
    assert!(
        Kernel::parse(&format!("{declared}r += x{}", "*1".repeat(200_000)), Precision::F64).is_ok()
    );
}
