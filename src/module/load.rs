//! Loading: the function that the server calls once, and everything that it registers.

use super::api::{Context, Text};
use super::names::DEFAULT_PREFIX;
use super::server::{server, status};
use super::{alloc, call, commands, config, data_type, guard, info, log, offload};
use redis_module::raw;
use std::ffi::{CString, c_int, c_void};

/// The version as the server wants it, an integer: 10_203 for 1.2.3.
#[allow(clippy::arithmetic_side_effects, reason = "evaluated by the compiler")]
const MODULE_VERSION: c_int = version_part(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + version_part(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + version_part(env!("CARGO_PKG_VERSION_PATCH"));

const fn version_part(text: &str) -> c_int {
    match c_int::from_str_radix(text, 10) {
        Ok(part) => part,
        Err(_) => unreachable!(),
    }
}

/// Valkey's option for atomic slot migration. The bit means other things elsewhere.
const VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// Where the server enters the module. If loading fails, one line in the log says why.
///
/// # Safety
/// Only the server calls this, with the arguments of its module API.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "the server finds it by its symbol")]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server passes a valid context. This binds the API and allocates nothing of ours.
    unsafe { raw::Export_RedisModule_InitAPI(ctx) };
    if let Err(why) = alloc::bind() {
        log::warning(&format!("not loaded: {why}"));
        return status::ERR;
    }
    guard::install_hook();
    // SAFETY: the server's own arguments. They aren't kept beyond this call.
    let load = || unsafe { load(ctx, Text::arguments(argv, argc)) };
    match guard::call("onload", load, || Err("internal error".to_owned())) {
        Ok(()) => status::OK,
        Err(why) => {
            log::warning(&format!("not loaded: {why}"));
            status::ERR
        }
    }
}

/// What the load arguments say.
struct Arguments {
    prefix: String,
    options: Vec<(String, String)>,
}

fn parse(arguments: &[Text<'_>]) -> Result<Arguments, String> {
    let words: Vec<String> =
        arguments.iter().map(|argument| String::from_utf8_lossy(argument.bytes()).into_owned()).collect();
    if !words.len().is_multiple_of(2) {
        return Err("Invalid number of arguments passed: they are pairs of a name and a value".to_owned());
    }
    let mut parsed = Arguments { prefix: DEFAULT_PREFIX.to_owned(), options: Vec::new() };
    for pair in words.chunks_exact(2) {
        let [name, value] = pair else { continue };
        if name.eq_ignore_ascii_case("PREFIX") {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            if value.is_empty() || value.len() > 32 || !value.bytes().all(plain) {
                return Err("PREFIX takes 1 to 32 letters, digits, - or _".to_owned());
            }
            parsed.prefix = value.to_ascii_lowercase();
        } else {
            parsed.options.push((name.clone(), value.clone()));
        }
    }
    Ok(parsed)
}

/// Subscribes to flushes: loads in progress belong to the keys that were flushed, and end with them.
///
/// # Safety
/// `ctx` is the context of the running `RedisModule_OnLoad`, and the API is bound.
unsafe fn flush_loads_with_keys(ctx: *mut raw::RedisModuleCtx) {
    let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_FLUSHDB, dataver: 1 };
    // SAFETY: the context is the caller's, and the callback lives as long as the module, which is never unloaded.
    if unsafe { server!(RedisModule_SubscribeToServerEvent(ctx, event, Some(flushed))) } != status::OK {
        log::warning("the server does not say when keys are flushed; loads in chunks go on then");
    }
}

unsafe extern "C" fn flushed(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    if subevent != raw::REDISMODULE_SUBEVENT_FLUSHDB_END {
        return;
    }
    // SAFETY: the server passes this struct with this event, valid during the call.
    let info = unsafe { data.cast::<raw::RedisModuleFlushInfo>().as_ref() };
    // -1 means all databases.
    let database = info.map(|info| info.dbnum).filter(|database| *database >= 0);
    guard::call("flush", || call::flush_loads(database), || ());
}

/// # Safety
/// `ctx` is the context of the running `RedisModule_OnLoad`, and the API is bound.
unsafe fn load(ctx: *mut raw::RedisModuleCtx, arguments: &[Text<'_>]) -> Result<(), String> {
    let Arguments { prefix, options } = parse(arguments)?;
    let name = CString::new(prefix.as_str()).unwrap_or_default();
    // SAFETY: the name is NUL-terminated, and the server copies it. The context is the caller's.
    let context = unsafe {
        if server!(RedisModule_IsModuleNameBusy(name.as_ptr())) != 0 {
            return Err(format!(
                "another module is loaded under the name {prefix} (RedisBloom, perhaps). Load with PREFIX name, and \
                 the commands are name.ADD and so on"
            ));
        }
        server!(RedisModule_SetModuleAttribs(
            ctx,
            name.as_ptr(),
            MODULE_VERSION,
            raw::REDISMODULE_APIVER_1 as c_int
        ));
        Context::new(ctx).ok_or("no context")?
    };
    // SAFETY: as above.
    unsafe {
        data_type::register(ctx)?;
        commands::register(ctx, &prefix)?;
        config::register(context, &prefix)?;
        info::register(ctx);
        offload::join_at_shutdown(ctx);
        flush_loads_with_keys(ctx);
    }
    // Arguments come last, so they override the configuration file.
    config::take_arguments(&options)?;
    let mut flags = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    if context.info_is(c"server", c"server_name", "valkey") {
        flags |= VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION;
    }
    // SAFETY: a plain call.
    unsafe { server!(RedisModule_SetModuleOptions(ctx, flags as c_int)) };
    log::notice(&format!("{} loaded, commands {}.*", env!("CARGO_PKG_VERSION"), prefix.to_ascii_uppercase()));
    Ok(())
}
