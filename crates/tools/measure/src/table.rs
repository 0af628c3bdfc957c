//! Text tables: the first column is aligned left, the others right.

use std::fmt;

/// A table of text cells. `Display` renders it as aligned columns.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates an empty table with these column names.
    #[must_use]
    pub fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    /// Appends a row. It must have one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "a row has a cell for every column");
        self.rows.push(cells);
    }

    /// Returns the column names.
    #[must_use]
    pub fn head(&self) -> &[String] {
        &self.head
    }

    /// Returns the rows, in order.
    #[must_use]
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.head]).map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        for row in std::iter::once(&self.head).chain(&self.rows) {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                line += &if column == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("  {cell:>width$}")
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
