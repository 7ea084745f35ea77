//! The only way to the server's log. The server expects a printf format. Modules that passed text as the format have
//! crashed servers (`%s` in a key name), so here text is always an argument.

#![allow(unsafe_code)]

use redis_module::raw;
use std::ffi::CString;

/// How important a line is.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    Notice,
    Warning,
}

/// Maximum length of a text in bytes. The server cuts lines at 1024 bytes.
const MOST: usize = 900;

/// Writes a line, from any thread. Does nothing without a server.
pub(crate) fn line(level: Level, text: &str) {
    let level = match level {
        Level::Notice => c"notice",
        Level::Warning => c"warning",
    };
    let mut bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    bytes.truncate(MOST);
    let text = CString::new(bytes).unwrap_or_default();
    // SAFETY: the level, the format and its one argument are NUL-terminated; a null context is allowed.
    unsafe {
        if let Some(log) = raw::RedisModule_Log {
            log(std::ptr::null_mut(), level.as_ptr(), c"bloomery: %s".as_ptr(), text.as_ptr());
        }
    }
}

/// Writes a warning.
pub(crate) fn warning(text: &str) {
    line(Level::Warning, text);
}

/// Writes a notice.
pub(crate) fn notice(text: &str) {
    line(Level::Notice, text);
}
