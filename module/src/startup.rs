//! Loading: the function that the server calls to load the module, and everything that this function registers.

#![allow(unsafe_code)]

use super::api::{Context, EventCallback, Text};
use super::names::DEFAULT_PREFIX;
use super::server::{server, status};
use super::{
    alloc, commands, config, data_type, duplicate_load, eviction, guard, info, log, memory, snapshots,
    tenants, uploads, waiting,
};
use bloomery_commands::families;
use redis_module::raw;
use std::ffi::{CString, c_int, c_void};

/// The version in MODULE LIST: that of the RedisBloom whose replies are recorded in the tests, 2.8.2. Tools look there
/// for what the commands of `bf` can do. INFO has the module's own version.
const MODULE_VERSION: c_int = 20_802;

/// Valkey's option for atomic slot migration. On other servers, this bit has other meanings.
const VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// The module's entry point. If loading fails, one line in the log says why.
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
    // SAFETY: the server passes a valid context. This binds the API and allocates nothing through our allocator, which
    // isn't bound yet.
    unsafe { raw::Export_RedisModule_InitAPI(ctx) };
    if let Err(why) = alloc::bind() {
        log::warning(&format!("not loaded: {why}"));
        return status::ERR;
    }
    guard::install_hook();
    bloomery::metrics::this_is_the_main_thread();
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

/// The parsed load arguments.
struct Arguments {
    prefix: String,
    families: Vec<&'static str>,
    on_clash: OnClash,
    options: Vec<(String, String)>,
}

/// What to do if another module has the name.
enum OnClash {
    /// Fail to load: the server doesn't start.
    Abort,
    /// Load under this name.
    Prefix(String),
    /// Load without commands, data types and options.
    Skip,
}

fn parse(arguments: &[Text<'_>]) -> Result<Arguments, String> {
    let mut words = arguments.iter().map(|argument| String::from_utf8_lossy(argument.bytes()).into_owned());
    let all = families().iter().map(|family| family.name).collect();
    let mut parsed = Arguments {
        prefix: DEFAULT_PREFIX.to_owned(),
        families: all,
        on_clash: OnClash::Abort,
        options: Vec::new(),
    };
    while let Some(name) = words.next() {
        let mut value = || {
            let missing = "Invalid number of arguments passed: they are pairs of a name and a value";
            words.next().ok_or_else(|| missing.to_owned())
        };
        match name.to_ascii_uppercase().as_str() {
            "PREFIX" => parsed.prefix = prefix(&value()?)?,
            "FAMILIES" => parsed.families = chosen(&value()?)?,
            "ONCLASH" => {
                parsed.on_clash = match value()?.to_ascii_uppercase().as_str() {
                    "ABORT" => OnClash::Abort,
                    "SKIP" => OnClash::Skip,
                    "PREFIX" => OnClash::Prefix(prefix(&value()?)?),
                    _ => return Err("ONCLASH expects ABORT, SKIP, or PREFIX and a name".to_owned()),
                }
            }
            _ => {
                let value = value()?;
                parsed.options.push((name, value));
            }
        }
    }
    Ok(parsed)
}

/// The families in a list.
fn chosen(list: &str) -> Result<Vec<&'static str>, String> {
    let all: Vec<&str> = families().iter().map(|family| family.name).collect();
    let known = |word: &str| all.iter().copied().find(|name| name.eq_ignore_ascii_case(word));
    let chosen: Option<Vec<&str>> = list.split(',').map(known).collect();
    chosen.ok_or_else(|| format!("FAMILIES expects some of {}, separated by commas", all.join(", ")))
}

/// Checks a name for the module and its commands. Returns the name in lower case.
fn prefix(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if text.is_empty() || text.len() > 32 || !text.bytes().all(plain) {
        return Err("PREFIX expects 1 to 32 letters, digits, - or _".to_owned());
    }
    Ok(text.to_ascii_lowercase())
}

/// Whether a module has this name.
fn is_taken(name: &str) -> bool {
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: the name is NUL-terminated.
    unsafe { server!(RedisModule_IsModuleNameBusy(name.as_ptr())) != 0 }
}

/// The name under which to load. `None` means that the module loads without commands, data types and options.
fn free_name(prefix: String, on_clash: OnClash) -> Result<Option<String>, String> {
    if !is_taken(&prefix) {
        return Ok(Some(prefix));
    }
    let taken = |name: &str| {
        format!(
            "another module is loaded under the name {name} (RedisBloom, perhaps). Load with PREFIX name, and the \
             commands are name.ADD and so on; ONCLASH says what to do when a name is taken"
        )
    };
    match on_clash {
        OnClash::Abort => Err(taken(&prefix)),
        OnClash::Skip => Ok(None),
        OnClash::Prefix(other) if is_taken(&other) => Err(taken(&other)),
        OnClash::Prefix(other) => {
            log::warning(&format!("another module is loaded under the name {prefix}; this one is {other}"));
            Ok(Some(other))
        }
    }
}

unsafe extern "C" fn configured(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    memory::configuration_changed();
}

/// Stops all jobs and joins the workers: the server ends with `exit`, and none of our threads may be running at that
/// point.
unsafe extern "C" fn shut_down(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    guard::call("shutdown", waiting::shut_down, || ());
}

/// Unloads stand-ins, gives up jobs that keep too much memory in use, forgets who left a key, drops uploads, and
/// counts what tenants have. Called several times a second.
unsafe extern "C" fn tick(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    guard::call("started", duplicate_load::tick, || ());
    guard::call("kept", waiting::give_up_kept, || ());
    eviction::tick();
    // SAFETY: the context is valid during the call.
    if let Some(ctx) = unsafe { Context::new(ctx) } {
        guard::call("tick", || uploads::tick(ctx), || ());
        guard::call("tenants", || tenants::tick(ctx), || ());
    }
}

/// Ends the uploads in progress of the keys that were flushed.
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
    guard::call("flush", || uploads::flush(database), || ());
}

/// Subscribes to the events that the module can do without.
fn follow_events(context: Context<'_>) {
    let events: [(_, EventCallback, _); 3] = [
        (raw::REDISMODULE_EVENT_SHUTDOWN, shut_down, "it shuts down; worker threads will not be joined then"),
        (raw::REDISMODULE_EVENT_FLUSHDB, flushed, "keys are flushed; loads in chunks go on then"),
        (raw::REDISMODULE_EVENT_CRON_LOOP, tick, "time passes; abandoned loads stay"),
    ];
    for (event, callback, without) in events {
        if !context.subscribe(event, callback) {
            log::warning(&format!("the server does not say when {without}"));
        }
    }
}

/// # Safety
/// `ctx` is the context of the running `RedisModule_OnLoad`, and the API is bound.
unsafe fn load(ctx: *mut raw::RedisModuleCtx, arguments: &[Text<'_>]) -> Result<(), String> {
    let is_loaded = duplicate_load::begin()?;
    let Arguments { prefix, families, on_clash, options } = parse(arguments)?;
    // SAFETY: the context is the caller's.
    let context = unsafe { Context::new(ctx) }.ok_or("no context")?;
    if is_loaded || is_taken(&prefix) && duplicate_load::is_copy(context, &prefix) {
        // SAFETY: the caller's contract is passed on. The module has no name yet.
        return unsafe { duplicate_load::stand_in(ctx) };
    }
    let wanted = prefix.clone();
    let Some(prefix) = free_name(prefix, on_clash)? else {
        // SAFETY: as above.
        let name = unsafe { duplicate_load::name(ctx, "bloomery-skipped") };
        log::warning(&format!(
            "another module is loaded under the name {wanted}; this one is {}, without commands and data types, as \
             ONCLASH SKIP says",
            name.to_string_lossy()
        ));
        duplicate_load::skipped();
        return Ok(());
    };
    let name = CString::new(prefix.as_str()).unwrap_or_default();
    // SAFETY: the name is NUL-terminated, and the server copies it. The context is the caller's.
    unsafe {
        server!(RedisModule_SetModuleAttribs(
            ctx,
            name.as_ptr(),
            MODULE_VERSION,
            raw::REDISMODULE_APIVER_1 as c_int
        ));
    }
    // SAFETY: as above.
    let registered = unsafe {
        data_type::register(ctx, uploads::BESIDE_KEYS)?;
        let registered = commands::register(ctx, &prefix, families)?;
        config::register(context, &prefix)?;
        // These come after the configuration file, which they override.
        config::take_arguments(&options)?;
        // Nothing may fail after the first subscription: Redis 7.0 keeps the subscriptions of a module that fails to
        // load, and makes their calls even after it has unmapped the module.
        if !context.subscribe(raw::REDISMODULE_EVENT_CONFIG, configured) {
            return Err("the server does not say when its configuration changes".to_owned());
        }
        info::register(ctx);
        eviction::register(ctx);
        registered
    };
    waiting::register(context);
    uploads::register(context);
    snapshots::register(context);
    follow_events(context);
    let mut flags = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    if context.is_valkey() {
        flags |= VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION;
    }
    // SAFETY: a plain call, and the context is the caller's.
    unsafe {
        server!(RedisModule_SetModuleOptions(ctx, flags as c_int));
        duplicate_load::loaded(ctx);
    }
    log::notice(&format!(
        "{} loaded, commands {}",
        env!("CARGO_PKG_VERSION"),
        registered.join(".*, ") + ".*"
    ));
    Ok(())
}
