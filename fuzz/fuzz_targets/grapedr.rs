//! Listings of the simulated GRAPE-DR. Any text is an error or a listing, and a printed listing
//! parses to an equal one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sprat_grapedr::{Kernel, assemble};

fuzz_target!(|text: &str| {
    if let Ok(kernel) = Kernel::assemble(text) {
        let printed = kernel.to_string();
        assert_eq!(Kernel::assemble(&printed).expect("printed").to_string(), printed);
    }
    let Ok(listing) = assemble(text) else { return };
    assert_eq!(assemble(&listing.to_string()), Ok(listing));
});
