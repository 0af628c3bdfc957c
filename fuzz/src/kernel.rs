//! Kernels. Any text is a program, or an error with its position. A program's listing parses to the
//! same program, also at the other precision. Contraction keeps the number of results.

use sprat_formula::{Kernel, Precision};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    for (precision, other) in [(Precision::F64, Precision::F32), (Precision::F32, Precision::F64)] {
        match Kernel::parse(text, precision) {
            Err(error) => {
                assert!(
                    error.line > 0
                        && error.column > 0
                        && error.line <= text.matches('\n').count() + 1
                );
                assert!(error.to_string().lines().count() >= 3);
            }
            Ok(kernel) => {
                let listing = kernel.program.to_string();
                let again = Kernel::parse(&listing, other)
                    .unwrap_or_else(|error| panic!("{error}\n{listing}"));
                assert_eq!(again.program, kernel.program, "{listing}");
                let contracted = kernel.program.contracted();
                assert_eq!(contracted.results().len(), kernel.program.results().len());
            }
        }
    }
}
