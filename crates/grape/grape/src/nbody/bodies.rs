//! Bodies with mass, and their conserved quantities.

use crate::error::Error;
use sprat_ranks::Ranks;

/// A vector for each body: the x of all bodies, then all y, then all z.
pub type Vectors = [Vec<f64>; 3];

/// Limit on the bodies of a simulation. At 64 bytes each, this many bodies take a gigabyte.
pub const MAX_BODIES: usize = 1 << 24;

/// Bodies that attract each other, in units in which the gravitational constant is 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Bodies {
    mass: Vec<f64>,
    /// Positions.
    pub position: Vectors,
    /// Velocities.
    pub velocity: Vectors,
}

/// The conserved quantities of a system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conserved {
    /// Kinetic energy: half of the sum of m v^2.
    pub kinetic: f64,
    /// Potential energy: half of the sum of m times the potential.
    pub potential: f64,
    /// Momentum: the sum of m v.
    pub momentum: [f64; 3],
    /// Angular momentum: the sum of m r x v.
    pub angular: [f64; 3],
}

impl Conserved {
    /// Returns the total energy.
    #[must_use]
    pub fn energy(&self) -> f64 {
        self.kinetic + self.potential
    }
}

impl Bodies {
    /// Creates bodies of these masses, positions and velocities.
    ///
    /// # Errors
    /// There are no bodies or more than [`MAX_BODIES`], columns have different lengths, or a number
    /// is not finite.
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

    /// Sends the first rank's bodies to all ranks.
    ///
    /// # Errors
    /// [`Error::Stopped`] if another rank has stopped, or if there are too many bodies for
    /// [`Ranks::broadcast`].
    ///
    /// # Panics
    /// The first rank has no bodies.
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

    /// Returns the number of bodies.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mass.len()
    }

    /// Returns `false`, because there is always a body.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the masses.
    #[must_use]
    pub fn mass(&self) -> &[f64] {
        &self.mass
    }

    /// Computes the conserved quantities from each body's potential.
    ///
    /// # Panics
    /// There are not as many potentials as bodies.
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

    /// Shifts positions and velocities so that the centre of mass rests at the origin. Does nothing
    /// if the total mass is 0.
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

/// Returns the vector of one body.
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
