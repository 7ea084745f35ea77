//! Streams of typed fields, as in RDB files. The values of our data type, and of RedisBloom's and valkey-bloom's, are
//! loaded from such streams and saved to them.

use crate::mem::{Cells, Words};

/// A source of fields. Each call returns `None` at the end of the stream, or if the next field has a different type.
pub trait Source {
    /// Reads the next field as an integer.
    fn unsigned(&mut self) -> Option<u64>;
    /// Reads the next field as a floating-point number.
    fn double(&mut self) -> Option<f64>;
    /// Passes the next field, a string, to `read`, and returns what `read` returns.
    fn string<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R>;
}

/// A destination for fields.
pub trait Sink {
    /// Appends an integer.
    fn unsigned(&mut self, value: u64);
    /// Appends a floating-point number.
    fn double(&mut self, value: f64);
    /// Appends a string.
    fn string(&mut self, bytes: &[u8]);
    /// Appends a string: the first `len` bytes of these words, little-endian.
    fn words(&mut self, words: &Cells, len: u64) {
        self.string(&Words::to_bytes(words, len));
    }
}
