//! The protocol with the peers of `bench grape`.

use std::path::Path;

use proptest::prelude::{any, proptest};
use sprat_bench::grape::{Answer, Question};

#[test]
fn questions_are_lines() {
    assert_eq!(
        Question::Make("numba", "f32", Path::new("/tmp/a")).to_string(),
        "make numba f32 /tmp/a"
    );
    assert_eq!(Question::Run("keops", "f64").to_string(), "run keops f64");
}

#[test]
fn answers_are_read() {
    let answer = |line: &str| line.parse::<Answer>().unwrap();
    assert_eq!(answer("made 0.68.1\n"), Answer::Made("0.68.1".to_owned()));
    assert_eq!(answer("took 0.25\n"), Answer::Took(0.25));
    assert_eq!(
        answer("cannot ModuleNotFoundError: numba"),
        Answer::Cannot("ModuleNotFoundError: numba".to_owned())
    );
}

#[test]
fn invalid_answers_are_refused() {
    for line in [
        "",
        "\n",
        "made",
        "took",
        "took soon",
        "took 0",
        "took -1",
        "took inf",
        "took NaN",
        "tock 1",
    ] {
        assert!(line.parse::<Answer>().is_err(), "{line:?}");
    }
}

proptest! {
    #[test]
    fn no_line_breaks_it(line in any::<String>()) {
        if let Ok(Answer::Took(seconds)) = line.parse() {
            assert!(seconds > 0.0);
        }
    }
}
