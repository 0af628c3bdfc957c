//! A table of numbered entries that reuses numbers.

/// Entries by number, at most as many as a limit allows.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
    limit: usize,
}

impl<T> Slab<T> {
    pub(crate) fn new(limit: usize) -> Self {
        assert!(u32::try_from(limit).is_ok());
        Self { entries: Vec::new(), free: Vec::new(), limit }
    }

    /// Adds an entry; `None` when the table is full.
    pub(crate) fn insert(&mut self, entry: T) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = Some(entry);
            return Some(index);
        }
        if self.entries.len() == self.limit {
            return None;
        }
        let index = u32::try_from(self.entries.len()).ok()?;
        self.entries.push(Some(entry));
        Some(index)
    }

    /// Returns the number that the next entry will have; `None` when the table is full.
    pub(crate) fn vacant(&self) -> Option<u32> {
        match self.free.last() {
            Some(&index) => Some(index),
            None if self.entries.len() == self.limit => None,
            None => u32::try_from(self.entries.len()).ok(),
        }
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(entry)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.entries).filter_map(|(index, entry)| Some((index, entry.as_ref()?)))
    }
}
