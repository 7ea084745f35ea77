//! RedisBloom's sketches. The program carries them from one server to another, and doesn't look inside.

/// A type of sketches.
#[derive(Debug, PartialEq)]
pub(crate) struct Sketch {
    /// Name in sentences.
    pub(crate) title: &'static str,
    /// Type of the keys, as the TYPE command returns it.
    pub(crate) key_type: &'static str,
}

/// The type of Top-K sketches.
pub(crate) const TOP_K: &str = "TopK-TYPE";

/// All types of sketches.
pub(crate) static SKETCHES: [Sketch; 3] = [
    Sketch { title: "count-min sketch", key_type: "CMSk-TYPE" },
    Sketch { title: "Top-K", key_type: TOP_K },
    Sketch { title: "t-digest", key_type: "TDIS-TYPE" },
];
