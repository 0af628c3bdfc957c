//! What several fuzz targets share.

#[path = "../../crates/tools/cli/src/transfer/mod.rs"]
pub mod transfer;

#[path = "../../crates/tools/cli/src/browser/protocol/mod.rs"]
pub mod browser;

use transfer::{Error, Item, Source};

/// Reads a source to its end, and checks that what it yields is within limits.
pub fn drain(source: &mut dyn Source) -> Result<Vec<Item>, Error> {
    let mut items = Vec::new();
    let mut item = Item::default();
    while source.next(&mut item)? {
        assert!(item.key.len() <= sprat_wire::MAX_KEY && item.value.len() <= sprat_wire::MAX_VALUE);
        items.push(item.clone());
    }
    Ok(items)
}
