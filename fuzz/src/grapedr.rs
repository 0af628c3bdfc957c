//! Listings of the simulated GRAPE-DR. Any text is an error or a listing, and a printed listing
//! parses to an equal one.

use crate::input;
use sprat_grapedr::{Kernel, assemble};

pub(crate) fn run(bytes: &[u8]) {
    let Some(text) = input::<&str>(bytes) else { return };
    if let Ok(kernel) = Kernel::assemble(text) {
        let printed = kernel.to_string();
        assert_eq!(Kernel::assemble(&printed).expect("printed").to_string(), printed);
    }
    let Ok(listing) = assemble(text) else { return };
    assert_eq!(assemble(&listing.to_string()), Ok(listing));
}
