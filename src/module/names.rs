//! The names of the commands, which depend on the prefix under which the module was loaded.

use crate::command::table::Entry;
use crate::command::{Command, TABLE};
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// The module's name and the prefix of its commands, unless a load argument gives another prefix.
pub(super) const DEFAULT_PREFIX: &str = "bf";

/// The commands' names, in the order of the table.
static NAMES: OnceLock<Vec<CString>> = OnceLock::new();

/// Sets the prefix, once. Returns the commands' names in the order of the table.
pub(super) fn decide(prefix: &str) -> &'static [CString] {
    let full = |entry: &Entry| CString::new(entry.name(prefix)).unwrap_or_default();
    NAMES.get_or_init(|| TABLE.iter().map(full).collect())
}

/// The name under which a command is registered.
pub(super) fn name_of(command: Command) -> &'static CStr {
    let index = TABLE.iter().position(|entry| entry.command == command);
    let name = index.and_then(|index| NAMES.get()?.get(index));
    name.map_or(c"", |name| name.as_c_str())
}
