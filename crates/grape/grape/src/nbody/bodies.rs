//! Particles with mass, and what is conserved of them.

use crate::error::Error;
use sprat_ranks::Ranks;

/// A vector for each particle: x, y and z, each of all particles.
pub type Vectors = [Vec<f64>; 3];

/// Bodies of a run, at most: what 64 bytes each make a gigabyte of.
pub const MAX_BODIES: usize = 1 << 24;

/// Particles that attract each other. Units are such that the constant of gravity is 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Bodies {
    mass: Vec<f64>,
    /// Positions.
    pub position: Vectors,
    /// Velocities.
    pub velocity: Vectors,
}

/// What is conserved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conserved {
    /// Half of the sum of m v^2.
    pub kinetic: f64,
    /// Half of the sum of m times the potential.
    pub potential: f64,
    /// The sum of m v.
    pub momentum: [f64; 3],
    /// The sum of m r x v.
    pub angular: [f64; 3],
}

impl Conserved {
    /// Kinetic and potential energy together.
    #[must_use]
    pub fn energy(&self) -> f64 {
        self.kinetic + self.potential
    }
}

impl Bodies {
    /// Bodies of these masses, positions and velocities.
    ///
    /// # Errors
    /// None or too many, of different numbers, or anything that is not a finite number.
    pub fn new(mass: Vec<f64>, position: Vectors, velocity: Vectors) -> Result<Self, Error> {
        let count = mass.len();
        if count == 0 || count > MAX_BODIES {
            return Err(Error::Bodies { count, limit: MAX_BODIES });
        }
        for (name, column) in
            ["x", "y", "z"].iter().zip(&position).chain(["vx", "vy", "vz"].iter().zip(&velocity))
        {
            if column.len() != count {
                return Err(Error::Lengths { name, len: column.len(), masses: count });
            }
        }
        let columns = [("mass", &mass)].into_iter();
        let columns = columns.chain(["x", "y", "z"].into_iter().zip(&position));
        for (name, column) in columns.chain(["vx", "vy", "vz"].into_iter().zip(&velocity)) {
            if let Some(body) = column.iter().position(|number| !number.is_finite()) {
                return Err(Error::NotFinite { name, body, number: column[body] });
            }
        }
        Ok(Self { mass, position, velocity })
    }

    /// The first rank's bodies, on all of them.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    ///
    /// # Panics
    /// No bodies on the first rank.
    pub fn shared(mine: Option<Self>, ranks: &Ranks) -> Result<Self, Error> {
        let columns = |bodies: &Self| {
            [&[bodies.mass.clone()][..], &bodies.position, &bodies.velocity].concat()
        };
        let words = mine.iter().flat_map(columns).flatten().map(f64::to_bits).collect();
        assert!(mine.is_some() || !ranks.is_first(), "the first rank has bodies");
        let words = ranks.broadcast(words)?;
        let mut all = words
            .chunks(words.len() / 7)
            .map(|column| column.iter().copied().map(f64::from_bits).collect());
        let mut next = || all.next().expect("seven went in");
        Self::new(next(), [next(), next(), next()], [next(), next(), next()])
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mass.len()
    }

    /// There is always one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Masses.
    #[must_use]
    pub fn mass(&self) -> &[f64] {
        &self.mass
    }

    /// What is conserved, given each body's potential.
    #[must_use]
    pub fn conserved(&self, potential: &[f64]) -> Conserved {
        assert_eq!(potential.len(), self.len(), "a potential for each body");
        let mut all =
            Conserved { kinetic: 0.0, potential: 0.0, momentum: [0.0; 3], angular: [0.0; 3] };
        for (body, potential) in potential.iter().enumerate() {
            let (m, r, v) = (self.mass[body], at(&self.position, body), at(&self.velocity, body));
            all.kinetic += 0.5 * m * dot(v, v);
            all.potential += 0.5 * m * potential;
            let turned = cross(r, v);
            for axis in 0..3 {
                all.momentum[axis] += m * v[axis];
                all.angular[axis] += m * turned[axis];
            }
        }
        all
    }

    /// Moves and speeds up all so that their centre of mass rests at the origin.
    pub fn centre(&mut self) {
        let total: f64 = self.mass.iter().sum();
        if total == 0.0 {
            return;
        }
        for column in self.position.iter_mut().chain(&mut self.velocity) {
            let mean =
                column.iter().zip(&self.mass).map(|(number, mass)| number * mass).sum::<f64>()
                    / total;
            column.iter_mut().for_each(|number| *number -= mean);
        }
    }
}

/// One particle's vector.
#[must_use]
pub fn at(vectors: &Vectors, body: usize) -> [f64; 3] {
    [vectors[0][body], vectors[1][body], vectors[2][body]]
}

pub(crate) fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}
