//! The module's options in the server's CONFIG, and as load arguments.
//!
//! If the server lets a module's options have names without a prefix (Redis ≥ 8), the names are RedisBloom's:
//! `bf-error-rate`. Otherwise the server puts the module's name before each: `bf.error-rate`. Such a server also
//! accepts valkey-bloom's names.

#![allow(unsafe_code)]

use super::api::{Context, OwnText, Text};
use super::names::DEFAULT_PREFIX;
use super::server::{server, status};
use super::settings::{self, settings};
use super::{guard, tenants, waiting};
use bloomery::mem::use_huge_pages;
use bloomery_commands::config::{OPTIONS, Refusal, Setting, Settings, VALKEY_NAMES};
use redis_module::raw;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

/// Whether the server is setting all options because the module is being loaded. It sets those that aren't in its
/// configuration file to their defaults.
static IS_LOADING: AtomicBool = AtomicBool::new(false);

/// Registers every option and applies the values of the configuration file.
///
/// # Safety
/// `ctx` is the context of a running `RedisModule_OnLoad`.
pub(super) unsafe fn register(ctx: Context<'_>, module: &str) -> Result<(), String> {
    let own_names = takes_own_names(ctx);
    for (index, option) in OPTIONS.iter().enumerate() {
        let named = |name: String, flags| {
            let text = CString::new(name.as_str()).unwrap_or_default();
            let default = CString::new((option.get)(&Settings::DEFAULT)).unwrap_or_default();
            // SAFETY: the server copies the strings. The private data is the option's index, not an address.
            let registered = unsafe {
                server!(RedisModule_RegisterStringConfig(
                    ctx.as_ptr(),
                    text.as_ptr(),
                    default.as_ptr(),
                    flags,
                    Some(get),
                    Some(set),
                    None,
                    ptr::without_provenance_mut(index),
                ))
            };
            match registered {
                status::OK => Ok(()),
                _ => Err(format!("the server refused the option {name}")),
            }
        };
        if own_names {
            named(own_name(module, option), raw::REDISMODULE_CONFIG_UNPREFIXED)?;
            continue;
        }
        for (theirs, _) in VALKEY_NAMES.iter().filter(|(_, ours)| *ours == option.name) {
            // Hidden, so that CONFIG GET with a pattern shows each option once.
            named((*theirs).to_owned(), raw::REDISMODULE_CONFIG_HIDDEN)?;
        }
        // The server sets options in the order in which they are registered, so the value under our own name is set
        // last and takes effect.
        named(option.name.to_owned(), raw::REDISMODULE_CONFIG_DEFAULT)?;
    }
    IS_LOADING.store(true, Relaxed);
    // SAFETY: every option is registered.
    let loaded = unsafe { server!(RedisModule_LoadConfigs(ctx.as_ptr())) };
    IS_LOADING.store(false, Relaxed);
    take_effect();
    if loaded == status::OK { Ok(()) } else { Err("the configuration was refused".to_owned()) }
}

/// Whether a module's options may have names without a prefix. Valkey has no flag for that. Redis before 8 refuses the
/// flag and logs a warning, so it isn't tried there.
fn takes_own_names(ctx: Context<'_>) -> bool {
    // SAFETY: a plain call.
    let version = unsafe { raw::RedisModule_GetServerVersion.map_or(0, |version| version()) };
    version >= 0x0008_0000 && !ctx.is_valkey()
}

/// An option's name on a server that puts nothing before it. This is RedisBloom's name for the option, unless the
/// module was loaded under another name.
fn own_name(module: &str, option: &Setting) -> String {
    if module == DEFAULT_PREFIX && option.name.starts_with("cf-") {
        option.name.to_owned()
    } else {
        format!("{module}-{}", option.name)
    }
}

/// Applies `NAME value` pairs from the load arguments.
pub(super) fn take_arguments(arguments: &[(String, String)]) -> Result<(), String> {
    for (name, value) in arguments {
        let is_named = |option: &&Setting| {
            let theirs =
                VALKEY_NAMES.iter().filter(|(_, ours)| *ours == option.name).map(|(theirs, _)| *theirs);
            let ours = [&option.name.replace('-', "_"), option.name, &own_name(DEFAULT_PREFIX, option)];
            ours.into_iter().chain(theirs).any(|known| known.eq_ignore_ascii_case(name))
        };
        let option = OPTIONS.iter().find(is_named).ok_or_else(|| format!("Unrecognized option {name}"))?;
        put(option, name, value.as_bytes())?;
    }
    Ok(())
}

/// Sets an option. `name` is what the user called it.
fn put(option: &Setting, name: &str, value: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(value).map_err(|_| Refusal::Invalid);
    let earlier = settings::tenants();
    let set = |text| settings::change(|settings| (option.set)(settings, text));
    text.and_then(set).map_err(|refusal| refusal.text(name))?;
    take_effect();
    tenants::configured(earlier);
    Ok(())
}

/// Passes the settings to the parts that keep copies of them.
fn take_effect() {
    waiting::configure();
    use_huge_pages(settings().huge_pages);
}

/// For each option, the string that the server was last given. The server copies it, but doesn't free it.
static GIVEN: [AtomicPtr<raw::RedisModuleString>; OPTIONS.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; OPTIONS.len()];

unsafe extern "C" fn get(_name: *const c_char, index: *mut c_void) -> *mut raw::RedisModuleString {
    let text = || {
        let (option, given) = (OPTIONS.get(index.addr())?, GIVEN.get(index.addr())?);
        let text = OwnText::new((option.get)(&settings()).as_bytes()).into_ptr();
        // SAFETY: the old string came from `into_ptr` above, and the server has copied it since.
        drop(unsafe { OwnText::from_ptr(given.swap(text, Relaxed)) });
        Some(text)
    };
    guard::call("option-get", text, || None).unwrap_or(ptr::null_mut())
}

unsafe extern "C" fn set(
    name: *const c_char,
    value: *mut raw::RedisModuleString,
    index: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let mut value = [value];
    // SAFETY: the server passes one string, valid during the call.
    let text = unsafe { Text::arguments(value.as_mut_ptr(), 1) };
    // SAFETY: the server passes the option's name, NUL-terminated.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let outcome = guard::call(
        "option-set",
        || {
            let option = OPTIONS.get(index.addr()).ok_or("no such option")?;
            let text = text.first().map_or(&b""[..], |text| text.bytes());
            // All options already have their defaults, and this one may have been set under its other name.
            if IS_LOADING.load(Relaxed) && text == (option.get)(&Settings::DEFAULT).as_bytes() {
                return Ok(());
            }
            put(option, &name, text)
        },
        || Err("internal error".to_owned()),
    );
    match outcome {
        Ok(()) => status::OK,
        Err(why) => {
            // SAFETY: the server takes ownership of the string.
            unsafe { *error = OwnText::new(why.as_bytes()).into_ptr() };
            status::ERR
        }
    }
}
