//! Reads and writes bodies in NumPy's files. Each row has mass, x, y, z, vx, vy and vz.

use super::bodies::Bodies;
use crate::array::{Array, write};
use crate::error::Error;
use std::path::Path;

const COLUMNS: usize = 7;

/// Writes bodies as an array of `float64`. Each body is a row of mass, position and velocity.
///
/// # Errors
/// [`Error::File`] if the file cannot be created or written.
pub fn write_snapshot(path: &Path, bodies: &Bodies) -> Result<(), Error> {
    let rows = (0..bodies.len()).flat_map(|body| {
        let places = bodies.position.iter().chain(&bodies.velocity);
        std::iter::once(bodies.mass()[body]).chain(places.map(move |column| column[body]))
    });
    let shape = [bodies.len() as u64, COLUMNS as u64];
    write(path, &shape, rows).map_err(|error| Error::File { path: path.to_owned(), error })
}

/// Reads bodies from an array of the form that [`write_snapshot`] writes.
///
/// # Errors
/// [`Error::File`] if the file cannot be opened; [`Error::Array`] if it is not an array of 7
/// columns that [`Array::read`](crate::Array::read) accepts; or the errors of [`Bodies::new`].
pub fn read_snapshot(path: &Path) -> Result<Bodies, Error> {
    let array = Array::read(path)?;
    let columns = array.columns();
    if columns.len() != COLUMNS {
        let why = format!(
            "it has {} columns, and bodies have 7: mass, x, y, z, vx, vy, vz",
            columns.len()
        );
        return Err(Error::Array { path: path.to_owned(), why });
    }
    let mut all = columns
        .iter()
        .map(|column| (0..array.rows()).map(|row| column.get(row)).collect::<Vec<f64>>());
    let mut next = || all.next().expect("counted");
    Bodies::new(next(), [next(), next(), next()], [next(), next(), next()])
}
