//! Reads and writes arrays in NumPy's files, with a row for each particle and a column for each
//! variable.

use crate::divided::low_word;
use crate::error::Error;
use npyz::{DType, NpyFile, Order, TypeChar, WriterBuilder as _};
use sprat_formula::{Column, Data, Output, Precision};
use sprat_ranks::Ranks;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::Path;

/// Limit on the elements of an array. A file with more elements is rejected.
pub const MAX_NUMBERS: u64 = 1 << 32;

/// An array that was read from a file, with elements of `float32` or `float64`. [`Array::columns`]
/// returns its columns as inputs of a kernel, without copying.
#[derive(Clone, Debug)]
pub struct Array {
    numbers: Numbers,
    rows: usize,
    columns: usize,
    /// Whether each column is contiguous in memory (Fortran order).
    by_column: bool,
}

#[derive(Clone, Debug)]
enum Numbers {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Array {
    /// Reads a file that `numpy.save` wrote. Its elements must be `float32` or `float64`. With one
    /// dimension it is a single column; otherwise it must have two dimensions.
    ///
    /// # Errors
    /// - [`Error::File`] if the file cannot be opened, or its length cannot be read.
    /// - [`Error::Array`] if the file is not a NumPy array, is too short, has neither one dimension
    ///   nor two, has more than [`MAX_NUMBERS`] elements, or has elements of another type.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = |error| Error::File { path: path.to_owned(), error };
        let array = |why: String| Error::Array { path: path.to_owned(), why };
        let opened = File::open(path).map_err(file)?;
        let len = opened.metadata().map_err(file)?.len();
        let npy = NpyFile::new(BufReader::new(opened))
            .map_err(|error| array(format!("not a NumPy array: {error}")))?;
        let by_column = npy.order() == Order::Fortran;
        let (rows, columns) = match *npy.shape() {
            [rows] => (rows, 1),
            [rows, columns] => (rows, columns),
            ref shape => return Err(array(format!("it has {} dimensions", shape.len()))),
        };
        let count = rows.checked_mul(columns).filter(|count| *count <= MAX_NUMBERS);
        let count = count.ok_or_else(|| {
            array(format!("{rows} times {columns} numbers are more than {MAX_NUMBERS}"))
        })?;
        let kind = match npy.dtype() {
            DType::Plain(plain) if plain.type_char() == TypeChar::Float => plain.size_field(),
            other => return Err(array(format!("its type is {}", other.descr()))),
        };
        // The header determines how much memory is allocated, so the file must be long enough for
        // it.
        if len < count * kind {
            return Err(array(format!(
                "it ends too early: {count} numbers of {kind} bytes in a file of {len}"
            )));
        }
        let short = |error: std::io::Error| array(format!("it ends too early: {error}"));
        let numbers = match kind {
            4 => Numbers::F32(npy.into_vec().map_err(short)?),
            8 => Numbers::F64(npy.into_vec().map_err(short)?),
            bytes => return Err(array(format!("it has numbers of {bytes} bytes"))),
        };
        let fits = |count| usize::try_from(count).expect("as many as were read");
        Ok(Self { numbers, rows: fits(rows), columns: fits(columns), by_column })
    }

    /// Reads a file on the first rank, and sends the array to all ranks.
    ///
    /// # Errors
    /// On the first rank, those of [`Array::read`]. On every rank, [`Error::Stopped`] if another
    /// rank has stopped, or if the array has too many elements for [`Ranks::broadcast`].
    pub fn shared(path: &Path, ranks: &Ranks) -> Result<Self, Error> {
        if ranks.count() == 1 {
            return Self::read(path);
        }
        let words = if ranks.is_first() { Self::read(path)?.words() } else { Vec::new() };
        Ok(Self::of_words(&ranks.broadcast(words)?))
    }

    /// Encodes the array for other ranks: a head, followed by the numbers.
    fn words(&self) -> Vec<u64> {
        let wide = matches!(self.numbers, Numbers::F64(_));
        let head =
            [u64::from(wide), self.rows as u64, self.columns as u64, u64::from(self.by_column)];
        let mut words = head.to_vec();
        match &self.numbers {
            Numbers::F32(numbers) => {
                words.extend(numbers.iter().map(|number| u64::from(number.to_bits())))
            }
            Numbers::F64(numbers) => words.extend(numbers.iter().map(|number| number.to_bits())),
        }
        words
    }

    /// Decodes the words that [`Array::words`] encoded.
    fn of_words(words: &[u64]) -> Self {
        let (&[wide, rows, columns, by_column], numbers) =
            words.split_first_chunk().expect("a head went in");
        let fits = |count| usize::try_from(count).expect("as many as were read");
        let (rows, columns) = (fits(rows), fits(columns));
        assert_eq!(numbers.len(), rows * columns, "as many numbers as went in");
        let numbers = match wide {
            0 => Numbers::F32(numbers.iter().map(|word| f32::from_bits(low_word(*word))).collect()),
            _ => Numbers::F64(numbers.iter().map(|word| f64::from_bits(*word)).collect()),
        };
        Self { numbers, rows, columns, by_column: by_column != 0 }
    }

    /// Returns the number of rows, which is the number of particles.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the precision of the elements: `float32` or `float64`.
    #[must_use]
    pub fn precision(&self) -> Precision {
        match self.numbers {
            Numbers::F32(_) => Precision::F32,
            Numbers::F64(_) => Precision::F64,
        }
    }

    /// Returns the columns. Each column holds a variable.
    #[must_use]
    pub fn columns(&self) -> Vec<Column<'_>> {
        let (begin, stride) = if self.by_column { (self.rows, 1) } else { (1, self.columns) };
        let part = |column: usize, len: usize| match self.by_column {
            true => column * begin..(column + 1) * begin,
            false => (column * begin).min(len)..len,
        };
        let columns = 0..self.columns;
        let all = columns.map(|column| match &self.numbers {
            Numbers::F32(numbers) => {
                Column::strided(Data::F32(&numbers[part(column, numbers.len())]), stride)
            }
            Numbers::F64(numbers) => {
                Column::strided(Data::F64(&numbers[part(column, numbers.len())]), stride)
            }
        });
        all.collect()
    }
}

/// Writes results to a file that `numpy.load` can read, with a row for each particle and a column
/// for each result. If any result is `float64` or an index, all are written as `float64`, otherwise
/// as `float32`. A bool is written as 0 or 1.
///
/// # Errors
/// [`Error::File`] if the file cannot be created or written.
pub fn write_outputs(path: &Path, outputs: &[Output]) -> Result<(), Error> {
    let wide = outputs.iter().any(|output| matches!(output, Output::F64(_) | Output::Index(_)));
    let rows = outputs.first().map_or(0, Output::len);
    let numbers = (0..rows).flat_map(|row| outputs.iter().map(move |output| number(output, row)));
    let shape = [rows as u64, outputs.len() as u64];
    #[expect(clippy::cast_possible_truncation, reason = "each is of this type, or 0 or 1")]
    let written = match wide {
        true => write(path, &shape, numbers),
        false => write(path, &shape, numbers.map(|number| number as f32)),
    };
    written.map_err(|error| Error::File { path: path.to_owned(), error })
}

/// Writes rows of numbers.
pub(crate) fn write<T: npyz::AutoSerialize>(
    path: &Path,
    shape: &[u64],
    numbers: impl Iterator<Item = T>,
) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut writer =
        npyz::WriteOptions::new().default_dtype().shape(shape).writer(&mut file).begin_nd()?;
    writer.extend(numbers)?;
    writer.finish()?;
    file.flush()
}

fn number(output: &Output, row: usize) -> f64 {
    match output {
        Output::F32(numbers) => f64::from(numbers[row]),
        Output::F64(numbers) => numbers[row],
        Output::Bool(all) => f64::from(u8::from(all[row])),
        // An index has 31 bits.
        Output::Index(places) => places[row] as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::{Array, Numbers};

    #[test]
    fn arrays_round_trip() {
        let narrow = Numbers::F32(vec![1.5, -0.0, 3.0, f32::INFINITY, 0.1, 7.0]);
        let wide = Numbers::F64(vec![0.1, -0.0, f64::MAX, 4.0, 5.0, 6.0]);
        for (numbers, by_column) in [(narrow, false), (wide, true)] {
            let array = Array { numbers, rows: 2, columns: 3, by_column };
            let arrived = Array::of_words(&array.words());
            assert_eq!(format!("{arrived:?}"), format!("{array:?}"));
        }
    }
}
