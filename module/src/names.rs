//! The names of the commands, which depend on the prefix under which the module was loaded.

use bloomery_commands::table;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// The module's name and the prefix of its commands, unless a load argument gives another prefix.
pub(super) const DEFAULT_PREFIX: &str = "bf";

/// The commands' names under the prefix `bf`, and the names under which they are registered.
static NAMES: OnceLock<Vec<(&'static str, CString)>> = OnceLock::new();

/// The families whose commands are registered, unless another module has the type of their values.
static FAMILIES: OnceLock<Vec<&'static str>> = OnceLock::new();

/// Sets the prefix and the families, once.
pub(super) fn decide(prefix: &str, families: Vec<&'static str>) {
    FAMILIES.get_or_init(|| families);
    NAMES.get_or_init(|| {
        let full = table()
            .into_iter()
            .map(|entry| (entry.name, CString::new(entry.name(prefix)).unwrap_or_default()));
        full.collect()
    });
}

/// Whether the commands of the family with this name are registered. A command has its family's name before the dot.
pub(super) fn is_chosen(name: &str) -> bool {
    let family = name.split('.').next();
    FAMILIES.get().is_some_and(|families| families.iter().any(|chosen| Some(*chosen) == family))
}

/// The name under which the command is registered that has this name under the prefix `bf`.
pub(super) fn name_of(command: &str) -> &'static CStr {
    let names = NAMES.get().map_or(&[][..], Vec::as_slice);
    let found = names.iter().find(|(name, _)| *name == command);
    found.map_or(c"", |(_, name)| name.as_c_str())
}

/// A text for users, in which commands get the names under which they are registered.
pub(super) fn rename(text: String) -> String {
    if name_of("bf.add") == c"bf.add" {
        return text;
    }
    let rename = |word: &str| {
        let command = word.trim_end_matches(|end: char| !end.is_ascii_uppercase());
        match name_of(&command.to_ascii_lowercase()).to_string_lossy() {
            name if name.is_empty() => word.to_owned(),
            name => word.replace(command, &name.to_ascii_uppercase()),
        }
    };
    text.split_inclusive(' ').map(rename).collect()
}
