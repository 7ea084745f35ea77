//! A macro that calls the server's functions, and the values that these return.

use redis_module::raw;
use std::ffi::c_int;

/// Calls a function that every server since Redis 7.0 has. For newer functions, callers check whether the server has
/// them, and do without those that are missing.
macro_rules! server {
    ($function:ident($($argument:expr),* $(,)?)) => {
        match redis_module::raw::$function {
            Some(function) => function($($argument),*),
            None => unreachable!(concat!(stringify!($function), " is in every server since Redis 7.0")),
        }
    };
}
pub(super) use server;

/// Values that the server's functions return: success or failure, and types of keys and replies.
#[allow(clippy::cast_possible_truncation, reason = "they are small")]
pub(super) mod status {
    use super::{c_int, raw};

    pub(crate) const OK: c_int = raw::REDISMODULE_OK as c_int;
    pub(crate) const ERR: c_int = raw::REDISMODULE_ERR as c_int;
    pub(crate) const EMPTY: c_int = raw::REDISMODULE_KEYTYPE_EMPTY as c_int;
    pub(crate) const STRING: c_int = raw::REDISMODULE_KEYTYPE_STRING as c_int;
    pub(crate) const REPLY_ERROR: c_int = raw::REDISMODULE_REPLY_ERROR as c_int;
    pub(crate) const HASH: c_int = raw::REDISMODULE_KEYTYPE_HASH as c_int;
}
