//! Parses the kernel language. Statements and expressions become values as they are read
//! ([`crate::check`]). Since declarations come first, the parser has to remember only names.

use crate::check::{Checker, Function, Precision};
use crate::error::{Fault, Problem, SyntaxError, closest, place};
use crate::lex::{Token, words};
use crate::limits::{MAX_FIELDS, MAX_FLOPS, MAX_NESTING};
use crate::names::{NameKind, Names};
use crate::operand::Term;
use crate::program::{Binary, Compare, Constant, Field, Program, Reduction, Type};
use crate::results::{ReduceOperator, Results};
use crate::span::Span;

/// A kernel that was read from text.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The kernel's program.
    pub program: Program,
    /// Names that are declared or assigned but not used, perhaps because of a typing error, in the
    /// order of the text. Results count as used.
    pub unused: Vec<UnusedName>,
}

/// A name that nothing uses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnusedName {
    /// The name.
    pub name: String,
    /// Line in which the name is declared or assigned, from 1.
    pub line: usize,
    /// Column of the name in the line, from 1.
    pub column: usize,
}

impl Kernel {
    /// Parses a kernel. `precision` is the type of variables and results that do not state their
    /// own.
    ///
    /// # Errors
    /// [`SyntaxError`] if the text is not a valid kernel; it describes the first error, with its
    /// line and column.
    pub fn parse(text: &str, precision: Precision) -> Result<Self, SyntaxError> {
        let kernel = || {
            let words = words(text)?;
            let mut parser = Parser { text, words, at: 0, depth: 0, names: Names::new(text) };
            let mut declared = parser.declarations(precision)?;
            let flops = declared.flops;
            let mut checker = Checker::new(declared.i, declared.j, declared.constants, precision);
            while !parser.take(Token::End) {
                parser.statement(&mut checker, &mut declared.results)?;
            }
            let mut builder = declared.results.finish(checker)?;
            builder.flops(flops);
            Ok((builder.finish(), parser.names))
        };
        let (program, names) = kernel().map_err(|fault: Fault| fault.shown(text))?;
        let unused = names.unused().map(|(name, at)| {
            let (line, column) = place(text, at);
            UnusedName { name: name.to_owned(), line, column }
        });
        Ok(Self { program, unused: unused.collect() })
    }
}

struct Parser<'t> {
    text: &'t str,
    words: Vec<(Token<'t>, Span)>,
    at: usize,
    depth: usize,
    names: Names<'t>,
}

#[derive(Default)]
struct Declared {
    i: Vec<Field>,
    j: Vec<Field>,
    constants: Vec<Constant>,
    results: Results,
    flops: Option<u32>,
}

/// Keywords of declarations.
pub(crate) const KEYWORDS: &[&str] = &["VARI", "VARJ", "VARF", "CONST", "FLOPS"];

type Parsed<T> = Result<T, Fault>;

impl<'t> Parser<'t> {
    fn declarations(&mut self, precision: Precision) -> Parsed<Declared> {
        let mut declared = Declared::default();
        while let Some(keyword) = self.keyword() {
            self.at += 1;
            if keyword == "FLOPS" {
                declared.flops = Some(self.flops()?);
            } else {
                self.declaration(keyword, precision, &mut declared)?;
            }
            self.end()?;
        }
        if declared.results.is_empty() {
            return Err(Fault::new(self.span(), Problem::NoResults));
        }
        Ok(declared)
    }

    /// Parses `VARI name, name: type`, with `= number` for constants.
    fn declaration(
        &mut self,
        keyword: &'static str,
        precision: Precision,
        declared: &mut Declared,
    ) -> Parsed<()> {
        let mut names: Vec<(&str, Span, Option<f64>)> = Vec::new();
        loop {
            let (name, span) = self.name("a name")?;
            let known = match keyword {
                "VARI" => declared.i.len(),
                "VARJ" => declared.j.len(),
                "CONST" => declared.constants.len(),
                _ => declared.results.len(),
            };
            let at = known + names.len();
            let Some(place) = u8::try_from(at).ok().filter(|_| at < MAX_FIELDS) else {
                return Err(Fault::new(span, Problem::Fields { keyword }));
            };
            self.names.add(
                name,
                span,
                match keyword {
                    "VARI" => NameKind::I(place),
                    "VARJ" => NameKind::J(place),
                    "CONST" => NameKind::Constant(place),
                    _ => NameKind::Result(at),
                },
            )?;
            let default =
                if keyword == "CONST" && self.symbol("=") { Some(self.constant()?) } else { None };
            names.push((name, span, default));
            if !self.symbol(",") {
                break;
            }
        }
        let of = if self.symbol(":") { Some(self.type_name()?) } else { None };
        let wanted = of.unwrap_or(precision.into());
        for (name, span, default) in names {
            let name = name.to_owned();
            match keyword {
                "VARI" => declared.i.push(Field { name, of: wanted }),
                "VARJ" => declared.j.push(Field { name, of: wanted }),
                "CONST" => declared.constants.push(Constant { name, of: wanted, default }),
                _ => declared.results.declare(name, span, of),
            }
        }
        Ok(())
    }

    fn type_name(&mut self) -> Parsed<Type> {
        let of = match self.token() {
            Token::Name(name) if name.eq_ignore_ascii_case("f32") => Type::F32,
            Token::Name(name) if name.eq_ignore_ascii_case("f64") => Type::F64,
            _ => return Err(self.expected("`f32` or `f64`")),
        };
        self.at += 1;
        Ok(of)
    }

    fn constant(&mut self) -> Parsed<f64> {
        let negated = self.symbol("-");
        let number = self.literal().ok_or_else(|| self.expected("a number"))?;
        Ok(if negated { -number } else { number })
    }

    fn literal(&mut self) -> Option<f64> {
        let number = match self.token() {
            Token::Number(number) => number,
            Token::Name(name) if name.eq_ignore_ascii_case("inf") => f64::INFINITY,
            Token::Name(name) if name.eq_ignore_ascii_case("nan") => f64::NAN,
            _ => return None,
        };
        self.at += 1;
        Some(number)
    }

    fn flops(&mut self) -> Parsed<u32> {
        let Token::Number(number) = self.token() else {
            return Err(self.expected("how many operations a pair counts"));
        };
        if number.fract() != 0.0 || !(1.0..=f64::from(MAX_FLOPS)).contains(&number) {
            return Err(Fault::new(self.span(), Problem::Flops));
        }
        self.at += 1;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, and in bounds"
        )]
        Ok(number as u32)
    }

    /// Parses `name = expression`, or a reduction such as `name += expression`.
    fn statement(&mut self, checker: &mut Checker, results: &mut Results) -> Parsed<()> {
        if let Some(keyword) = self.keyword() {
            return Err(Fault::new(self.span(), Problem::Late { keyword }));
        }
        let (name, span) = self.name("a statement such as `name = ...`")?;
        let operator = self.span();
        match self.way() {
            Some(way) => {
                let Some(result) = self.names.result(name) else {
                    let (at, problem) = match self.names.kind(name) {
                        None => (span, self.names.unknown(name)),
                        Some(NameKind::Local(_)) => {
                            (operator, Problem::NoResult { name: name.to_owned() })
                        }
                        Some(kind) => (
                            span,
                            Problem::Given { name: name.to_owned(), keyword: kind.keyword() },
                        ),
                    };
                    return Err(Fault::new(at, problem));
                };
                let term = self.expression(checker)?;
                self.end()?;
                results.contribute(checker, result, way, term, operator, self.text)
            }
            None => {
                let problem = match self.names.kind(name) {
                    Some(NameKind::Result(_)) => {
                        Some((operator, Problem::Assigned { name: name.to_owned() }))
                    }
                    Some(kind @ (NameKind::I(_) | NameKind::J(_) | NameKind::Constant(_))) => Some(
                        (span, Problem::Given { name: name.to_owned(), keyword: kind.keyword() }),
                    ),
                    _ => None,
                };
                if !self.symbol("=") {
                    return Err(self.expected("`=`, or a result's `+=` and its like"));
                }
                if let Some((span, problem)) = problem {
                    return Err(Fault::new(span, problem));
                }
                let term = self.expression(checker)?;
                self.names.add(name, span, NameKind::Local(term.what))?;
                self.end()
            }
        }
    }

    /// Parses a reduction operator, if there is one.
    fn way(&mut self) -> Option<ReduceOperator> {
        let (way, words) =
            match (self.token(), self.words.get(self.at + 1).map(|(token, _)| *token)) {
                (Token::Symbol("+="), _) => (ReduceOperator::plain("+=", Reduction::Sum), 1),
                (Token::Symbol("-="), _) => (
                    ReduceOperator { negated: true, ..ReduceOperator::plain("-=", Reduction::Sum) },
                    1,
                ),
                (Token::Symbol("&="), _) => (ReduceOperator::plain("&=", Reduction::And), 1),
                (Token::Symbol("|="), _) => (ReduceOperator::plain("|=", Reduction::Or), 1),
                (Token::Name(name), Some(Token::Symbol("="))) => {
                    let known = [
                        ReduceOperator::plain("min=", Reduction::Min),
                        ReduceOperator::plain("max=", Reduction::Max),
                        ReduceOperator::plain("and=", Reduction::And),
                        ReduceOperator::plain("or=", Reduction::Or),
                        ReduceOperator::plain("argmin=", Reduction::ArgMin),
                        ReduceOperator::plain("argmax=", Reduction::ArgMax),
                    ];
                    let is = |way: &ReduceOperator| {
                        way.text[..way.text.len() - 1].eq_ignore_ascii_case(name)
                    };
                    (known.into_iter().find(is)?, 2)
                }
                _ => return None,
            };
        self.at += words;
        Some(way)
    }

    /// Parses an expression. From the lowest precedence to the highest: `or`, `and`, `not`,
    /// comparisons, sums, products, signs.
    fn expression(&mut self, checker: &mut Checker) -> Parsed<Term> {
        let mut left = self.conjunction(checker)?;
        while self.word("or") {
            let right = self.conjunction(checker)?;
            left = checker.logic(Binary::Or, left, right)?;
        }
        Ok(left)
    }

    fn conjunction(&mut self, checker: &mut Checker) -> Parsed<Term> {
        let mut left = self.negation(checker)?;
        while self.word("and") {
            let right = self.negation(checker)?;
            left = checker.logic(Binary::And, left, right)?;
        }
        Ok(left)
    }

    fn negation(&mut self, checker: &mut Checker) -> Parsed<Term> {
        let start = self.span();
        if !self.word("not") {
            return self.comparison(checker);
        }
        let term = self.nested(|parser| parser.negation(checker))?;
        checker.not(term, start)
    }

    fn comparison(&mut self, checker: &mut Checker) -> Parsed<Term> {
        let left = self.sum(checker)?;
        let Some((what, swapped)) = self.compare() else { return Ok(left) };
        let right = self.sum(checker)?;
        let span = self.span();
        if self.compare().is_some() {
            return Err(Fault::new(span, Problem::Chain));
        }
        checker.compare(what, left, right, swapped)
    }

    /// Parses a comparison operator. Returns the operator, and whether its sides are exchanged.
    fn compare(&mut self) -> Option<(Compare, bool)> {
        let Token::Symbol(symbol) = self.token() else { return None };
        let found = match symbol {
            "<" => (Compare::Lt, false),
            "<=" => (Compare::Le, false),
            ">" => (Compare::Lt, true),
            ">=" => (Compare::Le, true),
            "==" => (Compare::Eq, false),
            "!=" => (Compare::Ne, false),
            _ => return None,
        };
        self.at += 1;
        Some(found)
    }

    fn sum(&mut self, checker: &mut Checker) -> Parsed<Term> {
        let mut left = self.product(checker)?;
        loop {
            let what = match self.token() {
                Token::Symbol("+") => Binary::Add,
                Token::Symbol("-") => Binary::Sub,
                _ => return Ok(left),
            };
            self.at += 1;
            let right = self.product(checker)?;
            left = checker.arithmetic(what, left, right)?;
        }
    }

    fn product(&mut self, checker: &mut Checker) -> Parsed<Term> {
        let mut left = self.sign(checker)?;
        loop {
            let what = match self.token() {
                Token::Symbol("*") => Binary::Mul,
                Token::Symbol("/") => Binary::Div,
                _ => return Ok(left),
            };
            self.at += 1;
            let right = self.sign(checker)?;
            left = checker.arithmetic(what, left, right)?;
        }
    }

    fn sign(&mut self, checker: &mut Checker) -> Parsed<Term> {
        let start = self.span();
        if self.symbol("-") {
            let term = self.nested(|parser| parser.sign(checker))?;
            return checker.negate(term, start);
        }
        if self.symbol("+") {
            let term = self.nested(|parser| parser.sign(checker))?;
            return checker.plus(term);
        }
        self.primary(checker)
    }

    fn primary(&mut self, checker: &mut Checker) -> Parsed<Term> {
        let span = self.span();
        if let Some(number) = self.literal() {
            return Ok(Term::literal(number, span));
        }
        if self.symbol("(") {
            let term = self.nested(|parser| parser.expression(checker))?;
            let span = span.to(self.close(span)?);
            return Ok(Term { span, ..term });
        }
        let Token::Name(name) = self.token() else {
            return Err(self.expected("a value: a name, a number, a function or `(`"));
        };
        self.at += 1;
        if let Some(function) = Function::named(name) {
            if !self.symbol("(") {
                let found = self.found();
                return Err(Fault::new(
                    self.span(),
                    Problem::Bare { name: function.name(), found },
                ));
            }
            let arguments = self.arguments(checker, function, span)?;
            let span = span.to(self.close(span)?);
            return checker.call(function, &arguments, span);
        }
        if self.token() == Token::Symbol("(") {
            let nearest = closest(name, Function::ALL.iter().map(|function| function.name()));
            return Err(Fault::new(
                span,
                Problem::UnknownFunction { name: name.to_owned(), nearest },
            ));
        }
        if is_reserved(name) {
            self.at -= 1;
            return Err(self.expected("a value: a name, a number, a function or `(`"));
        }
        let kind = self.names.used(name).map_err(|problem| Fault::new(span, problem))?;
        checker.named(kind, span)
    }

    fn arguments(
        &mut self,
        checker: &mut Checker,
        function: Function,
        span: Span,
    ) -> Parsed<Vec<Term>> {
        let mut arguments = Vec::new();
        if self.token() != Token::Symbol(")") {
            loop {
                arguments.push(self.nested(|parser| parser.expression(checker))?);
                if arguments.len() > Function::MOST_ARGUMENTS {
                    return Err(Fault::new(span, function.arguments(arguments.len())));
                }
                if !self.symbol(",") {
                    break;
                }
            }
        }
        Ok(arguments)
    }

    /// Parses a nested expression, and checks the depth.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_NESTING {
            return Err(Fault::new(self.span(), Problem::Nesting));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn close(&mut self, open: Span) -> Parsed<Span> {
        let span = self.span();
        if self.symbol(")") {
            return Ok(span);
        }
        if matches!(self.token(), Token::End | Token::Break) {
            let parenthesis =
                self.text[open.start..].find('(').map_or(open.start, |at| open.start + at);
            let (line, column) = place(self.text, parenthesis);
            return Err(Fault::new(span, Problem::Unclosed { line, column, found: self.found() }));
        }
        Err(self.expected("`)`, `,` or an operator"))
    }

    /// Parses the end of a statement.
    fn end(&mut self) -> Parsed<()> {
        if self.take(Token::Break) || self.token() == Token::End {
            return Ok(());
        }
        Err(self.expected("an operator, or the end of the statement"))
    }

    /// Parses a name that is not reserved.
    fn name(&mut self, expected: &'static str) -> Parsed<(&'t str, Span)> {
        let Token::Name(name) = self.token() else { return Err(self.expected(expected)) };
        let span = self.span();
        if is_reserved(name) {
            return Err(Fault::new(span, Problem::Reserved { name: name.to_owned() }));
        }
        self.at += 1;
        Ok((name, span))
    }

    /// Returns the keyword that comes next, without consuming it; `None` if another token comes
    /// next. Skips the slash that GRAPE-DR's compiler required before a keyword.
    fn keyword(&mut self) -> Option<&'static str> {
        let slash = usize::from(self.token() == Token::Symbol("/"));
        let Some((Token::Name(name), _)) = self.words.get(self.at + slash) else { return None };
        let keyword = KEYWORDS.iter().find(|keyword| keyword.eq_ignore_ascii_case(name))?;
        self.at += slash;
        Some(keyword)
    }

    fn token(&self) -> Token<'t> {
        self.words[self.at].0
    }

    fn span(&self) -> Span {
        self.words[self.at].1
    }

    fn take(&mut self, token: Token<'_>) -> bool {
        let taken = self.token() == token;
        self.at += usize::from(taken && token != Token::End);
        taken
    }

    fn symbol(&mut self, symbol: &'static str) -> bool {
        self.take(Token::Symbol(symbol))
    }

    fn word(&mut self, word: &str) -> bool {
        let taken = matches!(self.token(), Token::Name(name) if name.eq_ignore_ascii_case(word));
        self.at += usize::from(taken);
        taken
    }

    fn found(&self) -> String {
        self.token().named(self.span(), self.text)
    }

    fn expected(&self, expected: &str) -> Fault {
        let found = self.found();
        Fault::new(self.span(), Problem::Expected { expected: expected.to_owned(), found })
    }
}

/// Returns whether a name is reserved.
fn is_reserved(name: &str) -> bool {
    let others = ["and", "or", "not", "inf", "nan", "argmin", "argmax"];
    let is = |word: &&str| word.eq_ignore_ascii_case(name);
    KEYWORDS.iter().any(is) || others.iter().any(is) || Function::named(name).is_some()
}
