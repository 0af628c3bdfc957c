//! Code that several fuzz targets share.

use sprat_transfer::{Error, Item, ItemSource};

/// Reads a source to its end, and checks that each item is within limits.
pub fn drain(source: &mut dyn ItemSource) -> Result<Vec<Item>, Error> {
    let mut items = Vec::new();
    let mut item = Item::default();
    while source.next(&mut item)? {
        assert!(item.key.len() <= sprat_wire::MAX_KEY && item.value.len() <= sprat_wire::MAX_VALUE);
        items.push(item.clone());
    }
    Ok(items)
}
