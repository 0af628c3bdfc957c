//! A table in memory, for tests of imports and exports.

use sprat_transfer::{Error, Item, ItemSink, ItemSource, Omitted, pump};

/// Items in the order in which they arrived.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) items: Vec<Item>,
    given: usize,
    omitted: Omitted,
}

impl Table {
    pub(crate) fn of(items: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let items = items.into_iter().map(|(key, value)| Item { key, value }).collect();
        Self { items, ..Self::default() }
    }

    pub(crate) fn import(source: &mut dyn ItemSource) -> Result<Self, Error> {
        let mut table = Self::default();
        pump(source, &mut table, &mut |_| {})?;
        Ok(table)
    }

    /// Returns what a client would read under `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.items.iter().rev().find(|item| item.key == key).map(|item| &item.value[..])
    }

    pub(crate) fn export(&mut self, sink: &mut dyn ItemSink) -> Result<(), Error> {
        self.given = 0;
        pump(self, sink, &mut |_| {}).map(drop)
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.items.iter().map(|item| String::from_utf8_lossy(&item.key).into_owned()).collect()
    }
}

impl ItemSource for Table {
    fn next(&mut self, item: &mut Item) -> Result<bool, Error> {
        let Some(next) = self.items.get(self.given) else { return Ok(false) };
        item.clone_from(next);
        self.given += 1;
        Ok(true)
    }

    fn consumed_bytes(&self) -> u64 {
        0
    }

    fn omitted(&self) -> &Omitted {
        &self.omitted
    }
}

impl ItemSink for Table {
    fn put(&mut self, item: &Item) -> Result<(), Error> {
        self.items.push(item.clone());
        Ok(())
    }

    fn omitted(&self) -> &Omitted {
        &self.omitted
    }
}
