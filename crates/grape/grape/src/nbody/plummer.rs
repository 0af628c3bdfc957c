//! Plummer's model of a star cluster.

use super::bodies::Bodies;
use crate::error::Error;
use sprat_chance::Chance;
use std::f64::consts::PI;

/// Share of the model's mass that lies within the largest radius that is drawn. The rest of the
/// mass is left out, because its radii go to infinity.
const CUT: f64 = 0.999;

/// Creates a Plummer sphere of `count` equal bodies by the recipe of Aarseth, Hénon and Wielen
/// (Astron. Astrophys. 37, 183, 1974). It is isotropic and in equilibrium. In its units the mass
/// and the gravitational constant are 1, and the energy is about -1/4. Equal seeds give equal
/// clusters.
///
/// # Errors
/// The number of bodies is 0, or larger than [`super::MAX_BODIES`].
pub fn plummer(count: usize, seed: u64) -> Result<Bodies, Error> {
    if count == 0 || count > super::MAX_BODIES {
        return Err(Error::Bodies { count, limit: super::MAX_BODIES });
    }
    let mut chance = Chance::new(seed);
    let (mut position, mut velocity) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    // The Plummer radius is 1 in the recipe. In the units of this function, it is 3 pi / 16.
    let length = 3.0 * PI / 16.0;
    let speed = length.sqrt().recip();
    for _ in 0..count {
        let share = CUT * chance.share().max(f64::EPSILON);
        let radius = (share.powf(-2.0 / 3.0) - 1.0).sqrt().recip();
        let escape = 2.0_f64.sqrt() * (1.0 + radius * radius).powf(-0.25);
        push(&mut position, direction(&mut chance), radius * length);
        push(&mut velocity, direction(&mut chance), escape * share_of_escape(&mut chance) * speed);
    }
    let mass = (count as f64).recip();
    let mut bodies = Bodies::new(vec![mass; count], position, velocity)?;
    bodies.centre();
    Ok(bodies)
}

/// Draws q by rejection, with the density q^2 (1 - q^2)^(7/2), which is below 0.1 everywhere.
fn share_of_escape(chance: &mut Chance) -> f64 {
    loop {
        let (q, height) = (chance.share(), 0.1 * chance.share());
        if height < q * q * (1.0 - q * q).powf(3.5) {
            return q;
        }
    }
}

fn direction(chance: &mut Chance) -> [f64; 3] {
    let z = 2.0 * chance.share() - 1.0;
    let (sin, cos) = (2.0 * PI * chance.share()).sin_cos();
    let flat = (1.0 - z * z).sqrt();
    [flat * cos, flat * sin, z]
}

fn push(vectors: &mut [Vec<f64>; 3], direction: [f64; 3], length: f64) {
    vectors.iter_mut().zip(direction).for_each(|(column, part)| column.push(part * length));
}
