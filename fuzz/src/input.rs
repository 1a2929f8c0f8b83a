//! Taking an input apart: never fails, an input that has run out yields zeros.

/// What is left of an input.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of it.
    pub(crate) fn new(data: &'a [u8]) -> Input<'a> {
        Input { rest: data }
    }

    /// The next bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let (some, rest) = self.rest.split_at(N.min(self.rest.len()));
        taken[..some.len()].copy_from_slice(some);
        self.rest = rest;
        taken
    }

    /// The next byte.
    pub(crate) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two bytes.
    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes.
    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next eight bytes.
    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }
}
