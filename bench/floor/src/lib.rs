//! The floor: commands of the same shape as Bloomery's that do no filter work. They have the same arguments and flags,
//! open the key, check its type, and send the same kind of reply. Those that add also replicate the command, and report
//! that the key has changed. The cost of these commands is the server's own cost, and no filter can cost less.
//!
//! ```text
//! FLOOR.RESERVE key [bytes [lines]]    creates the key
//! FLOOR.EXISTS key item              yes or no          FLOOR.ADD key item            the same, as a write
//! FLOOR.MEXISTS key item [item ...]  as many answers    FLOOR.MADD key item [item ...]
//! FLOOR.BULKTEST key FIXED width blob  a bitmap         FLOOR.BULKADD key FIXED width blob  a number
//! ```
//!
//! If a command has several items, every second answer is yes. Only `FLOOR.RESERVE` itself allocates memory.
//!
//! There are also commands that do the minimum that any filter has to do. `FLOOR.TOUCH`, `MTOUCH` and `BULKTOUCH` hash
//! each item and read one cache line of the key per item, or as many lines as the argument `lines` of `FLOOR.RESERVE`
//! says. `FLOOR.MARK`, `MMARK` and `BULKMARK` also write to the lines. `FLOOR.RESERVE key bytes` makes the key as large
//! as the filter that it stands for.

use redis_module::raw;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// The type of the keys. Set once, when the module is loaded.
static TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(ptr::null_mut());

/// The reply to a bulk test: one bit per item, enough for 8 million items. Every second bit is set.
static BITMAP: [u8; 1 << 20] = [0xaa; 1 << 20];

/// Calls a function of the server's API.
macro_rules! server {
    ($function:ident($($argument:expr),* $(,)?)) => {
        match raw::$function {
            Some(function) => function($($argument),*),
            None => $crate::missing(),
        }
    };
}

mod lines; // after the macro, which it uses

use lines::Lines;

/// Aborts. This never happens, because Redis 7.0 and all later servers have every function used here.
#[cold]
fn missing() -> ! {
    std::process::abort()
}

type Context = *mut raw::RedisModuleCtx;
type Arguments = *mut *mut raw::RedisModuleString;
type Command = unsafe extern "C" fn(Context, Arguments, c_int) -> c_int;

/// The name, flags and function of each command. The flags are those of Bloomery's command of the same shape.
const COMMANDS: [(&CStr, &CStr, Command); 13] = [
    (c"FLOOR.RESERVE", c"write deny-oom", reserve),
    (c"FLOOR.EXISTS", c"readonly fast", exists),
    (c"FLOOR.ADD", c"write deny-oom fast", add),
    (c"FLOOR.MEXISTS", c"readonly fast", exists_many),
    (c"FLOOR.MADD", c"write deny-oom", add_many),
    (c"FLOOR.BULKTEST", c"readonly", bulk_test),
    (c"FLOOR.BULKADD", c"write deny-oom", bulk_add),
    (c"FLOOR.TOUCH", c"readonly fast", touch),
    (c"FLOOR.MARK", c"write deny-oom fast", mark),
    (c"FLOOR.MTOUCH", c"readonly fast", touch_many),
    (c"FLOOR.MMARK", c"write deny-oom", mark_many),
    (c"FLOOR.BULKTOUCH", c"readonly", bulk_touch),
    (c"FLOOR.BULKMARK", c"write deny-oom", bulk_mark),
];

/// The module's entry point.
///
/// # Safety
/// Only the server calls this, with the arguments of its module API.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: Context, _argv: Arguments, _argc: c_int) -> c_int {
    let mut methods = raw::RedisModuleTypeMethods {
        version: 1,
        rdb_load: Some(load),
        rdb_save: Some(save),
        aof_rewrite: Some(rewrite),
        mem_usage: None,
        digest: None,
        free: Some(free),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: None,
        unlink: None,
        copy: None,
        defrag: None,
        mem_usage2: None,
        free_effort2: None,
        unlink2: None,
        copy2: None,
        aux_save2: None,
    };
    // SAFETY: the context is the server's; the names are NUL-terminated, and the server copies them.
    unsafe {
        raw::Export_RedisModule_InitAPI(ctx);
        server!(RedisModule_SetModuleAttribs(ctx, c"floor".as_ptr(), 1, raw::REDISMODULE_APIVER_1 as c_int));
        let created = server!(RedisModule_CreateDataType(ctx, c"bf-floor1".as_ptr(), 0, &mut methods));
        TYPE.store(created, Relaxed);
        for (name, flags, command) in COMMANDS {
            let (name, flags) = (name.as_ptr(), flags.as_ptr());
            if server!(RedisModule_CreateCommand(ctx, name, Some(command), flags, 1, 1, 1)) != OK {
                return ERR;
            }
        }
        // As in Bloomery, each write itself reports that the key has changed.
        let options = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
        server!(RedisModule_SetModuleOptions(ctx, options as c_int));
    }
    if created_type().is_null() { ERR } else { OK }
}

fn created_type() -> *mut raw::RedisModuleType {
    TYPE.load(Relaxed)
}

unsafe extern "C" fn reserve(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: the context and the `argc` arguments are those of the running command.
    unsafe {
        // Bytes, and lines per item.
        let mut sizes: [c_longlong; 2] = [0, 1];
        if !(2..=4).contains(&argc) {
            return server!(RedisModule_WrongArity(ctx));
        }
        for (size, index) in sizes.iter_mut().zip(2..argc as usize) {
            if string_to_integer(*argv.add(index), size) != OK {
                return refuse(ctx, c"ERR FLOOR.RESERVE key [bytes [lines of each item]]");
            }
        }
        let [bytes, each] = sizes;
        let mode = raw::REDISMODULE_READ | raw::REDISMODULE_WRITE;
        let key = server!(RedisModule_OpenKey(ctx, *argv.add(1), mode as c_int)).cast();
        let value = Box::into_raw(Box::new(Lines::new(
            usize::try_from(bytes).unwrap_or(0),
            u64::try_from(each).unwrap_or(1),
        )))
        .cast();
        server!(RedisModule_ModuleTypeSetValue(key, created_type(), value));
        server!(RedisModule_CloseKey(key));
        server!(RedisModule_ReplyWithSimpleString(ctx, c"OK".as_ptr()))
    }
}

/// Opens a command's key, and returns whether it has the type that `FLOOR.RESERVE` creates.
///
/// # Safety
/// Context and arguments are those of the running command, which has a key.
#[inline(always)]
unsafe fn visit(ctx: Context, argv: Arguments, mode: u32) -> bool {
    // SAFETY: the handle is closed once, here.
    unsafe {
        let key = server!(RedisModule_OpenKey(ctx, *argv.add(1), mode as c_int)).cast();
        let ours = server!(RedisModule_ModuleTypeGetType(key)) == created_type()
            && !server!(RedisModule_ModuleTypeGetValue(key)).is_null();
        server!(RedisModule_CloseKey(key));
        ours
    }
}

/// Replicates the command, and reports that its key has changed.
///
/// # Safety
/// As for [`visit`].
#[inline(always)]
unsafe fn changed(ctx: Context, argv: Arguments) {
    // SAFETY: context and key are the caller's; the event's name is NUL-terminated.
    unsafe {
        server!(RedisModule_ReplicateVerbatim(ctx));
        server!(RedisModule_SignalModifiedKey(ctx, *argv.add(1)));
        let (class, event) = (raw::REDISMODULE_NOTIFY_MODULE, c"floor.add");
        server!(RedisModule_NotifyKeyspaceEvent(ctx, class, event.as_ptr(), *argv.add(1)));
    }
}

/// Returns the start and the length of an item. Every command has to read them.
///
/// # Safety
/// `item` is an argument of the running command.
#[inline(always)]
unsafe fn length(item: *mut raw::RedisModuleString) -> (*const c_char, usize) {
    let mut length = 0;
    // SAFETY: the caller guarantees that this is an argument.
    let bytes = unsafe { server!(RedisModule_StringPtrLen(item, &mut length)) };
    (bytes, length)
}

/// Runs a command with one item.
#[inline(always)]
unsafe fn one(ctx: Context, argv: Arguments, argc: c_int, write: bool) -> c_int {
    // SAFETY: the context and the `argc` arguments are those of the running command.
    unsafe {
        if argc != 3 {
            return server!(RedisModule_WrongArity(ctx));
        }
        if !visit(ctx, argv, mode(write)) {
            return wrong_type(ctx);
        }
        let (_, length) = length(*argv.add(2));
        if write {
            changed(ctx, argv);
        }
        server!(RedisModule_ReplyWithBool(ctx, (length & 1) as c_int))
    }
}

/// Runs a command with several items, and replies with an array of answers.
#[inline(always)]
unsafe fn many(ctx: Context, argv: Arguments, argc: c_int, write: bool) -> c_int {
    // SAFETY: as above.
    unsafe {
        if argc < 3 {
            return server!(RedisModule_WrongArity(ctx));
        }
        if !visit(ctx, argv, mode(write)) {
            return wrong_type(ctx);
        }
        if write {
            changed(ctx, argv);
        }
        server!(RedisModule_ReplyWithArray(ctx, (argc - 2).into()));
        for index in 2..argc {
            server!(RedisModule_ReplyWithBool(ctx, index & 1));
        }
        OK
    }
}

/// Checks the key and the arguments of a bulk command. Returns the number of items in the blob, or `None` after an
/// error reply.
#[inline(always)]
unsafe fn items_of_blob(ctx: Context, argv: Arguments, argc: c_int, write: bool) -> Option<usize> {
    // SAFETY: as above.
    unsafe {
        if argc != 5 {
            refuse(ctx, c"ERR FLOOR.BULK* key FIXED width blob");
            return None;
        }
        if !visit(ctx, argv, mode(write)) {
            wrong_type(ctx);
            return None;
        }
        let mut width: c_longlong = 0;
        let parsed = string_to_integer(*argv.add(3), &mut width);
        let (_, bytes) = length(*argv.add(4));
        match usize::try_from(width) {
            Ok(width @ 1..) if parsed == OK && bytes / width <= BITMAP.len() * 8 => Some(bytes / width),
            _ => {
                refuse(ctx, c"ERR bad width or too many items");
                None
            }
        }
    }
}

unsafe fn string_to_integer(text: *const raw::RedisModuleString, into: &mut c_longlong) -> c_int {
    // SAFETY: the text is an argument of the running command.
    unsafe { server!(RedisModule_StringToLongLong(text, into)) }
}

unsafe fn refuse(ctx: Context, text: &CStr) -> c_int {
    // SAFETY: the context is the caller's; the text is NUL-terminated.
    unsafe { server!(RedisModule_ReplyWithError(ctx, text.as_ptr())) }
}

unsafe fn wrong_type(ctx: Context) -> c_int {
    // SAFETY: the context is the caller's.
    unsafe { refuse(ctx, c"WRONGTYPE not a key of FLOOR.RESERVE") }
}

const fn mode(write: bool) -> u32 {
    raw::REDISMODULE_READ | if write { raw::REDISMODULE_WRITE } else { 0 }
}

unsafe extern "C" fn exists(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: the arguments are passed on unchanged.
    unsafe { one(ctx, argv, argc, false) }
}

unsafe extern "C" fn add(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { one(ctx, argv, argc, true) }
}

unsafe extern "C" fn exists_many(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { many(ctx, argv, argc, false) }
}

unsafe extern "C" fn add_many(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { many(ctx, argv, argc, true) }
}

unsafe extern "C" fn bulk_test(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: as above; `items_of_blob` checked that the bitmap is long enough.
    unsafe {
        let Some(items) = items_of_blob(ctx, argv, argc, false) else { return OK };
        server!(RedisModule_ReplyWithStringBuffer(ctx, BITMAP.as_ptr().cast(), items.div_ceil(8)))
    }
}

unsafe extern "C" fn bulk_add(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: as above.
    unsafe {
        let Some(items) = items_of_blob(ctx, argv, argc, true) else { return OK };
        changed(ctx, argv);
        server!(RedisModule_ReplyWithLongLong(ctx, items as c_longlong))
    }
}

/// Opens a command's key, and returns its lines, or `None` if it doesn't have the type that `FLOOR.RESERVE` creates.
///
/// # Safety
/// As for [`visit`]. Only this command uses the lines, and nothing interrupts it.
#[inline(always)]
unsafe fn lines<'a>(ctx: Context, argv: Arguments, write: bool) -> Option<&'a Lines> {
    // SAFETY: the handle is closed once, here; a key of our type has a value that `reserve` or `load` made.
    unsafe {
        let key = server!(RedisModule_OpenKey(ctx, *argv.add(1), mode(write) as c_int)).cast();
        let ours = server!(RedisModule_ModuleTypeGetType(key)) == created_type();
        let value: *mut Lines = server!(RedisModule_ModuleTypeGetValue(key)).cast();
        server!(RedisModule_CloseKey(key));
        if ours { value.as_ref() } else { None }
    }
}

/// Runs a command that touches the lines of one item.
#[inline(always)]
unsafe fn touch_one(ctx: Context, argv: Arguments, argc: c_int, write: bool) -> c_int {
    // SAFETY: the context and the `argc` arguments are those of the running command.
    unsafe {
        if argc != 3 {
            return server!(RedisModule_WrongArity(ctx));
        }
        let Some(lines) = lines(ctx, argv, write) else { return wrong_type(ctx) };
        let found = lines.touch_one(lines::bytes(*argv.add(2)), write);
        if write {
            changed(ctx, argv);
        }
        lines::reply(ctx, found)
    }
}

/// Runs a command that touches the lines of several items.
#[inline(always)]
unsafe fn touch_items(ctx: Context, argv: Arguments, argc: c_int, write: bool) -> c_int {
    // SAFETY: as above.
    unsafe {
        if argc < 3 {
            return server!(RedisModule_WrongArity(ctx));
        }
        let Some(lines) = lines(ctx, argv, write) else { return wrong_type(ctx) };
        if write {
            changed(ctx, argv);
        }
        server!(RedisModule_ReplyWithArray(ctx, (argc - 2).into()));
        let items = (2..argc as usize).map(|index| lines::bytes(*argv.add(index)));
        lines.touch_all(items, write, |found| {
            lines::reply(ctx, found);
        });
        OK
    }
}

/// Touches the lines of the items in a blob of equally long items. Returns the number of items, and how many of them
/// were found, or `None` after an error reply.
#[inline(always)]
unsafe fn touch_blob(ctx: Context, argv: Arguments, argc: c_int, write: bool) -> Option<(usize, usize)> {
    // SAFETY: as above.
    unsafe {
        let items = items_of_blob(ctx, argv, argc, write)?;
        let lines = lines(ctx, argv, write)?;
        let blob = lines::bytes(*argv.add(4));
        let mut found = 0;
        lines.touch_all(blob.chunks_exact(blob.len() / items.max(1)), write, |yes| found += usize::from(yes));
        Some((items, found))
    }
}

unsafe extern "C" fn touch(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: the arguments are passed on unchanged.
    unsafe { touch_one(ctx, argv, argc, false) }
}

unsafe extern "C" fn mark(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { touch_one(ctx, argv, argc, true) }
}

unsafe extern "C" fn touch_many(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { touch_items(ctx, argv, argc, false) }
}

unsafe extern "C" fn mark_many(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { touch_items(ctx, argv, argc, true) }
}

unsafe extern "C" fn bulk_touch(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: as above; the length is limited so that the reply ends inside the bitmap.
    unsafe {
        let Some((items, found)) = touch_blob(ctx, argv, argc, false) else { return OK };
        // The answer must have an effect, or the compiler would remove the test.
        let start = BITMAP.as_ptr().add(found & 1);
        server!(RedisModule_ReplyWithStringBuffer(ctx, start.cast(), items.div_ceil(8).min(BITMAP.len() - 1)))
    }
}

unsafe extern "C" fn bulk_mark(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    // SAFETY: as above.
    unsafe {
        let Some((_, found)) = touch_blob(ctx, argv, argc, true) else { return OK };
        changed(ctx, argv);
        server!(RedisModule_ReplyWithLongLong(ctx, found as c_longlong))
    }
}

// The content of a value isn't saved. A loaded value has a single line.

unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: the value was made by `reserve` or `load`, and is freed once.
    drop(unsafe { Box::from_raw(value.cast::<Lines>()) });
}

unsafe extern "C" fn load(_from: *mut raw::RedisModuleIO, _version: c_int) -> *mut c_void {
    Box::into_raw(Box::new(Lines::new(0, 1))).cast()
}

unsafe extern "C" fn save(_to: *mut raw::RedisModuleIO, _value: *mut c_void) {}

unsafe extern "C" fn rewrite(
    to: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    _value: *mut c_void,
) {
    // SAFETY: format "s" stands for one string, the key.
    unsafe { server!(RedisModule_EmitAOF(to, c"FLOOR.RESERVE".as_ptr(), c"s".as_ptr(), key)) }
}
