//! Builds programs, value by value.

use crate::limits::MAX_NODES;
use crate::program::{
    Binary, Compare, Constant, Field, Node, Program, Reduction, ResultField, Type, Unary, Value,
};
use crate::scalar;
use crate::simplify::{Form, Known};
use std::collections::HashMap;

/// Builds a [`Program`] value by value. Equal values are kept once. Values whose operands are known
/// are computed, and a value gets a simpler form if one is equal for all inputs. The caller must
/// add nodes of correct types, which the builder asserts.
#[derive(Debug)]
pub struct Builder {
    program: Program,
    known: HashMap<(Node, Type), Value>,
}

impl Builder {
    /// Begins a program with these variables.
    #[must_use]
    pub fn new(i: Vec<Field>, j: Vec<Field>, constants: Vec<Constant>) -> Self {
        let program =
            Program { i, j, constants, nodes: Vec::new(), results: Vec::new(), flops: None };
        Self { program, known: HashMap::new() }
    }

    /// Sets how many floating-point operations one pair counts by convention ([`Program::flops`]).
    pub fn flops(&mut self, flops: Option<u32>) {
        self.program.flops = flops;
    }

    /// Returns the type of a value.
    #[must_use]
    pub fn type_of(&self, value: Value) -> Type {
        self.program.type_of(value)
    }

    /// Adds a node, and returns its value. The value's type follows from its operands; `Convert`
    /// gives the other number type. Use [`Builder::number`] for numbers.
    ///
    /// # Panics
    /// If operands do not have the types that the node requires, the node is a number, or there
    /// would be more than [`MAX_NODES`].
    pub fn value(&mut self, node: Node) -> Value {
        let of = self.node_type(node);
        let mut node = node;
        loop {
            match Known(&self.program.nodes).simpler(node, of) {
                None => return self.intern(node, of),
                Some(Form::Value(value)) => return value,
                Some(Form::Number(number)) => return self.number(number, of),
                Some(Form::Node(simpler)) => node = simpler,
                Some(Form::Times(value, number)) => {
                    let number = self.number(number, of);
                    node = Node::Binary(Binary::Mul, value, number);
                }
            }
        }
    }

    /// Adds a number, rounded to a type.
    ///
    /// # Panics
    /// If the type is `Bool`, or there would be more than [`MAX_NODES`].
    pub fn number(&mut self, number: f64, of: Type) -> Value {
        assert_ne!(of, Type::Bool, "a number is not a bool");
        self.intern(Node::Number(scalar::round(number, of).to_bits()), of)
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.program.nodes.len()
    }

    /// Returns whether there is no value yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.program.nodes.is_empty()
    }

    /// Adds a result.
    ///
    /// # Panics
    /// If the contribution does not have the reduction's type.
    pub fn result(&mut self, name: &str, reduction: Reduction, contribution: Value) {
        let logic = matches!(reduction, Reduction::And | Reduction::Or);
        assert_eq!(
            self.type_of(contribution) == Type::Bool,
            logic,
            "{name}: a reduction of another type"
        );
        self.program.results.push(ResultField { name: name.to_owned(), reduction, contribution });
    }

    /// Returns the program, without values that no result needs. Variables and numbers come right
    /// before their first use.
    #[must_use]
    pub fn finish(self) -> Program {
        let nodes = &self.program.nodes;
        let mut needed = vec![false; nodes.len()];
        self.program.results.iter().for_each(|result| needed[result.contribution.index()] = true);
        for index in (0..nodes.len()).rev() {
            if needed[index] {
                nodes[index].0.operands().for_each(|operand| needed[operand.index()] = true);
            }
        }
        let mut order = Order { nodes, places: vec![None; nodes.len()], kept: Vec::new() };
        for (index, (node, _)) in nodes.iter().enumerate() {
            if needed[index] && node.operands().next().is_some() {
                order.keep(index);
            }
        }
        let mut results = self.program.results.clone();
        for result in &mut results {
            result.contribution = order.keep(result.contribution.index());
        }
        Program { nodes: order.kept, results, ..self.program }
    }

    fn intern(&mut self, node: Node, of: Type) -> Value {
        let twin = twin(node).and_then(|twin| self.known.get(&(twin, of)));
        if let Some(&value) = self.known.get(&(node, of)).or(twin) {
            return value;
        }
        assert!(self.len() < MAX_NODES, "more than {MAX_NODES} values");
        let value = place(self.len());
        self.program.nodes.push((node, of));
        self.known.insert((node, of), value);
        value
    }

    fn node_type(&self, node: Node) -> Type {
        let number = |value| {
            let of = self.type_of(value);
            assert_ne!(of, Type::Bool, "{node:?}: a bool where a number belongs");
            of
        };
        let same = |a, b| {
            assert_eq!(self.type_of(a), self.type_of(b), "{node:?}: operands of two types");
            self.type_of(a)
        };
        let bool = |value| {
            assert_eq!(self.type_of(value), Type::Bool, "{node:?}: a number where a bool belongs")
        };
        match node {
            Node::I(at) => self.program.i[usize::from(at)].of,
            Node::J(at) => self.program.j[usize::from(at)].of,
            Node::Constant(at) => self.program.constants[usize::from(at)].of,
            Node::Number(_) => unreachable!("numbers are made by Builder::number"),
            Node::Unary(Unary::Not, a) => {
                bool(a);
                Type::Bool
            }
            Node::Unary(Unary::Convert, a) => match number(a) {
                Type::F32 => Type::F64,
                _ => Type::F32,
            },
            Node::Unary(_, a) => number(a),
            Node::Binary(Binary::And | Binary::Or, a, b) => {
                bool(a);
                same(a, b)
            }
            Node::Binary(_, a, b) => {
                number(a);
                same(a, b)
            }
            Node::Compare(Compare::Lt | Compare::Le | Compare::Eq | Compare::Ne, a, b) => {
                number(a);
                same(a, b);
                Type::Bool
            }
            Node::Select(condition, a, b) => {
                bool(condition);
                same(a, b)
            }
            Node::Fma { a, b, c, .. } => {
                number(a);
                same(a, b);
                same(a, c)
            }
        }
    }
}

/// Values that are kept, with their new positions.
struct Order<'p> {
    nodes: &'p [(Node, Type)],
    places: Vec<Option<Value>>,
    kept: Vec<(Node, Type)>,
}

impl Order<'_> {
    /// Keeps a value. Its operands are either kept already, or variables and numbers.
    fn keep(&mut self, index: usize) -> Value {
        if let Some(place) = self.places[index] {
            return place;
        }
        let (node, of) = self.nodes[index];
        let node = node.map(|operand| self.keep(operand.index()));
        let place = place(self.kept.len());
        self.kept.push((node, of));
        self.places[index] = Some(place);
        place
    }
}

/// Returns the node with its operands exchanged, if it is commutative.
fn twin(node: Node) -> Option<Node> {
    match node {
        Node::Binary(what @ (Binary::Add | Binary::Mul | Binary::And | Binary::Or), a, b) => {
            Some(Node::Binary(what, b, a))
        }
        Node::Compare(what @ (Compare::Eq | Compare::Ne), a, b) => Some(Node::Compare(what, b, a)),
        _ => None,
    }
}

fn place(index: usize) -> Value {
    Value(u16::try_from(index).expect("bounded by MAX_NODES"))
}
