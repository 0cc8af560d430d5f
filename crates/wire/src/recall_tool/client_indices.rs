//! Indices of an answer's pieces for the client, once some are withheld or another answer stands before.

use std::collections::BTreeMap;

/// Largest number of indices kept apart; no real answer has more pieces.
pub(crate) const MAX_INDICES: usize = 1 << 16;

/// The client's indices, by the provider's.
#[derive(Debug, Default)]
pub(crate) struct ClientIndices {
    /// First index that is free for the client.
    next: u64,
    moved: Option<IndexShift>,
}

/// Indices that differ from the provider's own.
#[derive(Debug)]
struct IndexShift {
    /// Indices below this one do not differ.
    from: u64,
    given: BTreeMap<u64, u64>,
}

impl ClientIndices {
    /// The client's index for the piece at `place`. As long as no piece was withheld, it is the same.
    pub(crate) fn client_index(&mut self, place: u64) -> u64 {
        let next = self.next;
        let given = match &mut self.moved {
            Some(moved) if place >= moved.from && moved.given.len() < MAX_INDICES => {
                *moved.given.entry(place).or_insert(next)
            }
            Some(moved) => moved.given.get(&place).copied().unwrap_or(place),
            None => place,
        };
        self.next = next.max(given.saturating_add(1));
        given
    }

    /// From now on, assigns new indices one after another.
    pub(crate) fn start_renumbering(&mut self) {
        let from = self.next;
        self.moved.get_or_insert_with(|| IndexShift { from, given: BTreeMap::new() });
    }

    /// Prepares for another answer after the pieces so far.
    pub(crate) fn go_on(&mut self) {
        self.moved = Some(IndexShift { from: 0, given: BTreeMap::new() });
    }

    /// Returns true if indices may differ from the provider's.
    pub(crate) fn are_moved(&self) -> bool {
        self.moved.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_providers_until_something_is_withheld() {
        let mut places = ClientIndices::default();
        assert_eq!([0, 7, 1].map(|place| places.client_index(place)), [0, 7, 1]);
        places.start_renumbering();
        // Known pieces keep their indices, and new ones come after them.
        assert_eq!([7, 9, 8, 9, 0].map(|place| places.client_index(place)), [7, 8, 9, 8, 0]);
        places.go_on();
        assert_eq!([0, 1, 0].map(|place| places.client_index(place)), [10, 11, 10]);
        assert_eq!([u64::MAX].map(|place| ClientIndices::default().client_index(place)), [u64::MAX]);
    }
}
