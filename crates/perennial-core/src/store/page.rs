//! Limits on the size of one read.

/// The maximum size of a page. A page always contains at least one row if there is one, however large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    /// How many rows.
    pub rows: usize,
    /// How many bytes of bodies.
    pub bytes: u64,
}

impl PageLimit {
    /// At most this many rows, of any size.
    pub fn rows(rows: usize) -> PageLimit {
        PageLimit { rows, bytes: u64::MAX }
    }
}

/// Tracks the size of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageFill {
    limit: PageLimit,
    rows: usize,
    bytes: u64,
}

impl PageFill {
    /// An empty page.
    pub fn new(limit: PageLimit) -> PageFill {
        PageFill { limit, rows: 0, bytes: 0 }
    }

    /// Whether a row with a body of this many bytes still fits; if so, it is counted.
    pub fn admits(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let fits = self.rows < self.limit.rows && self.bytes.saturating_add(bytes) <= self.limit.bytes;
        if fits || self.rows == 0 {
            self.rows += 1;
            self.bytes = self.bytes.saturating_add(bytes);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_a_page_is_bounded_in_rows_and_bytes_and_holds_at_least_one_row() {
        let mut page = PageFill::new(PageLimit { rows: 3, bytes: 100 });
        assert!(page.admits(500), "the first row always fits");
        assert!(!page.admits(1));
        let mut page = PageFill::new(PageLimit { rows: 3, bytes: 100 });
        assert!(page.admits(50) && page.admits(50) && !page.admits(1));
        let mut page = PageFill::new(PageLimit::rows(2));
        assert!(page.admits(1) && page.admits(1) && !page.admits(1));
    }
}
