//! Handles a second load of the module by the same server.
//!
//! Containers and operators start servers with `--loadmodule` and with a configuration file that also loads the module,
//! because CONFIG REWRITE has written that line. If the second load failed, the server would abort, and would abort
//! again at each restart. So the second load succeeds, as a *stand-in*: a module without commands, data types or
//! options, which the first load unloads as soon as the server has started. CONFIG REWRITE then finds only one module,
//! and keeps one line.
//!
//! A second load of the same file finds the statics of the first, because the system maps a file once. A copy of the
//! file has statics of its own. It recognises the first load by a field of INFO, and reaches it through a function that
//! the first load shares. After the server has started, a second load is refused.

#![allow(unsafe_code)]

use super::api::Context;
use super::server::{server, status};
use super::{guard, log};
use redis_module::raw;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The state of the module in this library file.
enum LoadStage {
    NotLoaded,
    /// Being loaded. If loading fails and the file stays mapped, the state stays `Loading`: parts of the module may
    /// have been set up, and can't be set up again.
    Loading,
    /// Loaded, and the server is starting. The context is used to unload these stand-ins.
    Starting {
        ctx: usize,
        stand_ins: Vec<CString>,
    },
    Running,
}

/// The current stage. Only the main thread takes the lock.
static STAGE: Mutex<LoadStage> = Mutex::new(LoadStage::NotLoaded);

fn stage() -> MutexGuard<'static, LoadStage> {
    STAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name by which the first load shares [`expect`].
const EXPECT: &CStr = c"bloomery_expect_stand_in";

type Expect = unsafe extern "C" fn(*const c_char) -> c_int;

const ALREADY_LOADED: &str = "the module is loaded already";

/// Begins a load. Returns whether the module in this library file is loaded already.
///
/// # Errors
/// If an earlier load failed.
pub(super) fn begin() -> Result<bool, String> {
    let mut stage = stage();
    match *stage {
        LoadStage::NotLoaded => {
            *stage = LoadStage::Loading;
            Ok(false)
        }
        LoadStage::Loading => Err("an earlier load of this file has failed; restart the server".to_owned()),
        LoadStage::Starting { .. } | LoadStage::Running => Ok(true),
    }
}

/// Whether the module with this name is Bloomery, loaded from a copy of the library file.
pub(super) fn is_copy(ctx: Context<'_>, name: &str) -> bool {
    let [section, field] = [format!("{name}_pool"), format!("{name}_pool_threads")]
        .map(|text| CString::new(text).unwrap_or_default());
    matches!(ctx.info(&section, [&field]), [Some(_)])
}

/// Ends a load that was skipped, so that the file may be loaded again under another name.
pub(super) fn skipped() {
    *stage() = LoadStage::NotLoaded;
}

/// Turns the module that is being loaded into a stand-in.
///
/// # Errors
/// If the server has started, or the first load hasn't shared [`expect`].
///
/// # Safety
/// `ctx` is the context of the running `RedisModule_OnLoad`, whose module has no name yet, and the API is bound.
pub(super) unsafe fn stand_in(ctx: *mut raw::RedisModuleCtx) -> Result<(), String> {
    if matches!(*stage(), LoadStage::Running) {
        return Err(ALREADY_LOADED.to_owned());
    }
    // SAFETY: the caller's contract is passed on. The function that the first load shares has this type, in all
    // versions.
    let expected = unsafe {
        let name = name(ctx, "bloomery-again");
        match NonNull::new(server!(RedisModule_GetSharedAPI(ctx, EXPECT.as_ptr()))) {
            Some(expect) => {
                mem::transmute::<*mut c_void, Expect>(expect.as_ptr())(name.as_ptr()) == status::OK
            }
            None => false,
        }
    };
    if !expected {
        return Err(ALREADY_LOADED.to_owned());
    }
    if let stage @ LoadStage::Loading = &mut *stage() {
        *stage = LoadStage::NotLoaded; // this is a copy of the file, which may be loaded again
    }
    log::notice(
        "loaded already; this second `loadmodule` and its arguments have no effect. One in the configuration file is \
         enough: leave out --loadmodule",
    );
    Ok(())
}

/// Gives the module that is being loaded a free name: `start`, a dash and a number. Returns the name.
///
/// # Safety
/// Same as for [`stand_in`].
pub(super) unsafe fn name(ctx: *mut raw::RedisModuleCtx, start: &str) -> CString {
    let names = (1u64..).map(|number| CString::new(format!("{start}-{number}")).unwrap_or_default());
    // SAFETY: the name is NUL-terminated, and the server copies it. The context is the caller's.
    unsafe {
        let free = |name: &CString| server!(RedisModule_IsModuleNameBusy(name.as_ptr())) == 0;
        let name = names.into_iter().find(free).unwrap_or_default();
        server!(RedisModule_SetModuleAttribs(ctx, name.as_ptr(), 1, raw::REDISMODULE_APIVER_1 as c_int));
        name
    }
}

/// Records that the first load has succeeded, so that later loads are treated as second loads.
///
/// # Safety
/// `ctx` is the context of the running `RedisModule_OnLoad`, and the API is bound.
pub(super) unsafe fn loaded(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: the context is the caller's. The callbacks live as long as the module, which is never unloaded.
    unsafe {
        server!(RedisModule_ExportSharedAPI(ctx, EXPECT.as_ptr(), expect as Expect as *mut c_void));
        let own = server!(RedisModule_GetDetachedThreadSafeContext(ctx));
        *stage() = LoadStage::Starting { ctx: own.expose_provenance(), stand_ins: Vec::new() };
    }
}

/// Records the name of a stand-in, which is unloaded when the server has started. A second load calls this function,
/// whether it is of this file or of a copy, perhaps of another version.
unsafe extern "C" fn expect(name: *const c_char) -> c_int {
    // SAFETY: the caller passes a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(name) };
    let expect = || match &mut *stage() {
        LoadStage::Starting { stand_ins, .. } => {
            stand_ins.push(name.to_owned());
            status::OK
        }
        LoadStage::NotLoaded | LoadStage::Loading | LoadStage::Running => status::ERR,
    };
    guard::call("expect", expect, || status::ERR)
}

/// Unloads the stand-ins. The server's cron event calls this once all modules of the configuration have been loaded. An
/// event is used instead of a call requested from the event loop: after MODULE LOADEX with an unknown option, Redis 8
/// unloads the module by force. It then ends the module's subscriptions, but still makes the calls that were requested.
pub(super) fn tick() {
    // The lock is released before the server is called.
    let (ctx, stand_ins) = match &mut *stage() {
        LoadStage::Starting { ctx, stand_ins } => (*ctx, mem::take(stand_ins)),
        _ => return,
    };
    *stage() = LoadStage::Running;
    let ctx: *mut raw::RedisModuleCtx = ptr::with_exposed_provenance_mut(ctx);
    for name in &stand_ins {
        // SAFETY: the context is our own, and this is the main thread, where commands run. The texts are
        // NUL-terminated, as the format "cc" says, and the reply is freed once.
        let unloaded = unsafe {
            let reply = server!(RedisModule_Call(
                ctx,
                c"MODULE".as_ptr(),
                c"cc".as_ptr(),
                c"UNLOAD".as_ptr(),
                name.as_ptr()
            ));
            let unloaded =
                !reply.is_null() && server!(RedisModule_CallReplyType(reply)) != status::REPLY_ERROR;
            if !reply.is_null() {
                server!(RedisModule_FreeCallReply(reply));
            }
            unloaded
        };
        if !unloaded {
            let name = name.to_string_lossy();
            log::warning(&format!(
                "the module {name}, which stands for a second `loadmodule`, was not unloaded. CONFIG REWRITE keeps \
                 its line; MODULE UNLOAD {name} removes it"
            ));
        }
    }
    // SAFETY: the context is our own, and is freed once.
    unsafe { server!(RedisModule_FreeThreadSafeContext(ctx)) };
}
