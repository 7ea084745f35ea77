//! Registration of the commands, and the one entry through which the server calls each of them.

use super::api::{Context, Text, add_latency, pointer, server, status};
use super::call::ServerCall;
use super::info::PAYLOADS_REFUSED;
use super::{guard, reply};
use crate::command::table::{Argument, ArgumentKind, Entry, KeyUse, MoreKeys};
use crate::command::{Command, CommandError, Reply, TABLE, run};
use redis_module::raw;
use std::ffi::{CStr, CString, c_int};
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The names under which the commands are registered, in the order of the table.
static NAMES: OnceLock<Vec<CString>> = OnceLock::new();

/// Name under which a command is registered.
pub(super) fn name_of(command: Command) -> &'static CStr {
    let index = TABLE.iter().position(|entry| entry.command == command);
    let name = index.and_then(|index| NAMES.get()?.get(index));
    name.map_or(c"", |name| name.as_c_str())
}

type Callback =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// One callback per row of the table, so that each command is compiled for itself.
macro_rules! entries {
    ($($index:literal)*) => { [$(entry::<$index>),*] };
}

const ENTRIES: [Callback; TABLE.len()] = entries!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42
);

#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn command_at(index: usize) -> Command {
    TABLE[index].command
}

/// Whether a command has keys that only it can find. Cluster routing looks at a module's key specs by index alone, not
/// at those behind a word; ACL and COMMAND GETKEYS do look at them.
#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn names_its_keys(index: usize) -> bool {
    matches!(TABLE[index].more_keys, [MoreKeys::Behind { .. }, ..])
}

/// Whether the server is told that a command takes no time to speak of. To look at the clock would be a good part of it.
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "evaluated by the compiler")]
const fn is_fast(index: usize) -> bool {
    let (flags, word) = (TABLE[index].flags.as_bytes(), b"fast");
    let mut at = 0;
    while at + word.len() <= flags.len() {
        let mut same = 0;
        while same < word.len() && flags[at + same] == word[same] {
            same += 1;
        }
        if same == word.len() {
            return true;
        }
        at += 1;
    }
    false
}

/// Runs a command, and names one that held the server in LATENCY: the server's own event `command` does not say which
/// it was.
#[inline(always)]
fn run_watched<const INDEX: usize>(call: &ServerCall<'_>) -> Result<Reply, CommandError> {
    let command = const { command_at(INDEX) };
    if const { is_fast(INDEX) } {
        return run(command, call);
    }
    let started = Instant::now();
    let outcome = run(command, call);
    let took = started.elapsed();
    if took >= Duration::from_millis(1) {
        add_latency(name_of(command), took);
    }
    outcome
}

/// Names the first key, and those behind words.
fn name_keys(ctx: Context<'_>, entry: &Entry, arguments: &[Text<'_>]) {
    ctx.key_at(1, flags(entry.key));
    for more in entry.more_keys {
        let MoreKeys::Behind { word, from, count } = more else { continue };
        let from = usize::from(*from);
        let is_word = |text: &Text<'_>| text.bytes().eq_ignore_ascii_case(word.to_bytes());
        let Some(word) = arguments.iter().skip(from).position(is_word) else { continue };
        let first = word.saturating_add(from).saturating_add(1);
        let last = first.saturating_add(usize::from(*count)).min(arguments.len());
        for key in (first..last).filter_map(|key| c_int::try_from(key).ok()) {
            ctx.key_at(key, flags(KeyUse::Read));
        }
    }
}

/// The server calls command `INDEX` of the table.
unsafe extern "C" fn entry<const INDEX: usize>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server passes the context and arguments of the running command; they are not kept beyond it.
    let (Some(ctx), arguments) = (unsafe { (Context::new(ctx), Text::arguments(argv, argc)) }) else {
        return status::ERR;
    };
    let call = ServerCall { ctx, arguments };
    if const { names_its_keys(INDEX) } && ctx.is_asked_for_keys() {
        if let Some(entry) = TABLE.get(INDEX) {
            guard::call("keys", || name_keys(ctx, entry, arguments), || ());
        }
        return status::OK;
    }
    guard::call(
        "command",
        // Keys are closed when `run` returns, and everything that can fail is done by then.
        || {
            let outcome = run_watched::<INDEX>(&call);
            if let Err(why) = &outcome {
                count_refusal(why);
            }
            reply::send(ctx, outcome);
        },
        || reply::send(ctx, Err(CommandError::Internal)),
    );
    status::OK
}

#[cold]
fn count_refusal(why: &CommandError) {
    if why.is_of_payload() {
        PAYLOADS_REFUSED.add(1);
    }
}

/// Registers every command. The error names what the server refused.
///
/// # Safety
/// `ctx` is the context of a running `RedisModule_OnLoad`.
pub(super) unsafe fn register(ctx: *mut raw::RedisModuleCtx, prefix: &str) -> Result<(), String> {
    let full = |entry: &Entry| CString::new(entry.name(prefix)).unwrap_or_default();
    let names = NAMES.get_or_init(|| TABLE.iter().map(full).collect());
    // SAFETY: the callback's contract is passed on.
    let has_categories = unsafe { add_categories(ctx) };
    for (index, ((entry, callback), name)) in TABLE.into_iter().zip(ENTRIES).zip(names).enumerate() {
        let getkeys = if names_its_keys(index) { " getkeys-api" } else { "" };
        let flags = CString::new(format!("{}{getkeys}", entry.flags)).unwrap_or_default();
        // SAFETY: all strings are NUL-terminated and copied by the server.
        unsafe {
            let created = server!(RedisModule_CreateCommand(
                ctx,
                name.as_ptr(),
                Some(callback),
                flags.as_ptr(),
                1,
                1,
                1
            ));
            if created != status::OK {
                return Err(format!(
                    "the command {} is taken by another module; load with PREFIX name for commands name.ADD and so on",
                    name.to_string_lossy()
                ));
            }
            let command = server!(RedisModule_GetCommand(ctx, name.as_ptr()));
            if !describe(command, &entry) {
                return Err(format!("the server refused the description of {}", name.to_string_lossy()));
            }
            if has_categories {
                categorize(command, &entry);
            }
        }
    }
    Ok(())
}

/// Makes the ACL categories `bloom` and `cuckoo`, where the server has categories of modules. That they exist is as
/// good.
///
/// # Safety
/// As for [`register`].
unsafe fn add_categories(ctx: *mut raw::RedisModuleCtx) -> bool {
    // SAFETY: the categories' names are NUL-terminated.
    unsafe {
        match raw::RedisModule_AddACLCategory {
            Some(add) => {
                add(ctx, c"bloom".as_ptr());
                add(ctx, c"cuckoo".as_ptr());
                true
            }
            None => false,
        }
    }
}

/// # Safety
/// `command` is one of ours, while the module is being loaded.
unsafe fn categorize(command: *mut raw::RedisModuleCommand, entry: &Entry) {
    let categories = CString::new(entry.categories).unwrap_or_default();
    // SAFETY: the text is NUL-terminated. One unknown word would refuse the whole; all of these exist.
    unsafe {
        if let Some(set) = raw::RedisModule_SetCommandACLCategories {
            set(command, categories.as_ptr());
        }
    }
}

/// Strings and arrays that a description points at, for as long as the server reads it.
#[derive(Default)]
struct Arena {
    texts: Vec<CString>,
    arguments: Vec<Box<[raw::RedisModuleCommandArg]>>,
}

impl Arena {
    fn text(&mut self, text: &str) -> *const std::ffi::c_char {
        self.texts.push(CString::new(text).unwrap_or_default());
        pointer(self.texts.last().map(CString::as_c_str))
    }

    /// A zero-terminated array of arguments.
    fn arguments(&mut self, arguments: &[Argument], key_spec: c_int) -> *mut raw::RedisModuleCommandArg {
        let mut list: Vec<_> = arguments.iter().map(|argument| self.argument(argument, key_spec)).collect();
        list.push(NO_ARGUMENT);
        self.arguments.push(list.into_boxed_slice());
        self.arguments.last_mut().map_or(ptr::null_mut(), |list| list.as_mut_ptr())
    }

    fn argument(&mut self, argument: &Argument, key_spec: c_int) -> raw::RedisModuleCommandArg {
        use raw as r;
        let (kind, children) = match argument.kind {
            ArgumentKind::Text => (r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING, None),
            ArgumentKind::Integer => (r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER, None),
            ArgumentKind::Double => (r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_DOUBLE, None),
            ArgumentKind::Key => (r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, None),
            ArgumentKind::PureToken => (r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN, None),
            ArgumentKind::OneOf(list) => {
                (r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF, Some(list))
            }
            ArgumentKind::Block(list) => {
                (r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK, Some(list))
            }
        };
        let mut flags = raw::REDISMODULE_CMD_ARG_NONE;
        if argument.optional {
            flags |= raw::REDISMODULE_CMD_ARG_OPTIONAL;
        }
        if argument.multiple {
            flags |= raw::REDISMODULE_CMD_ARG_MULTIPLE;
        }
        raw::RedisModuleCommandArg {
            name: self.text(argument.name),
            type_: kind,
            key_spec_index: if matches!(argument.kind, ArgumentKind::Key) { key_spec } else { -1 },
            token: argument.token.map_or(ptr::null(), |token| self.text(token)),
            flags: flags as c_int,
            subargs: children.map_or(ptr::null_mut(), |list| self.arguments(list, key_spec)),
            ..NO_ARGUMENT
        }
    }
}

const NO_ARGUMENT: raw::RedisModuleCommandArg = raw::RedisModuleCommandArg {
    name: ptr::null(),
    type_: 0,
    key_spec_index: -1,
    token: ptr::null(),
    summary: ptr::null(),
    since: ptr::null(),
    flags: 0,
    deprecated_since: ptr::null(),
    subargs: ptr::null_mut(),
    display_text: ptr::null(),
};

/// Tells the server about a command: arity, keys, documentation. Without it every command would need permission to
/// read and write its key, and BF.EXISTS would be denied to users who may only read.
///
/// # Safety
/// `command` is one of ours, while the module is being loaded.
unsafe fn describe(command: *mut raw::RedisModuleCommand, entry: &Entry) -> bool {
    let mut arena = Arena::default();
    let mut specs = vec![spec_at_index(1, entry.key)];
    specs.extend(entry.more_keys.iter().map(spec_of_more));
    specs.push(NO_SPEC);
    let key =
        Argument { name: "key", token: None, kind: ArgumentKind::Key, optional: false, multiple: false };
    let mut arguments = vec![arena.argument(&key, 0)];
    // Every argument that is a key is said to be of the second spec; COMMAND DOCS shows no more than its index.
    arguments.extend(entry.arguments.iter().map(|argument| arena.argument(argument, 1)));
    arguments.push(NO_ARGUMENT);
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let info = raw::RedisModuleCommandInfo {
        version: &version,
        summary: arena.text(entry.summary),
        complexity: arena.text(entry.complexity),
        since: arena.text(entry.since),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: entry.arity,
        key_specs: specs.as_mut_ptr(),
        args: arguments.as_mut_ptr(),
    };
    // SAFETY: everything that `info` points at lives in this function, and the server copies it.
    unsafe { server!(RedisModule_SetCommandInfo(command, &info)) == status::OK }
}

#[allow(clippy::cast_possible_wrap, reason = "flags of the lowest 11 bits")]
fn flags(key: KeyUse) -> c_int {
    let flags = match key {
        KeyUse::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        KeyUse::Insert => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_INSERT,
        KeyUse::Overwrite => raw::REDISMODULE_CMD_KEY_OW | raw::REDISMODULE_CMD_KEY_UPDATE,
        KeyUse::Update => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
        KeyUse::Delete => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
    };
    flags as c_int
}

fn spec_at_index(index: c_int, key: KeyUse) -> raw::RedisModuleCommandKeySpec {
    raw::RedisModuleCommandKeySpec {
        flags: flags(key).unsigned_abs().into(),
        begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: index },
        },
        ..spec_of_one_key()
    }
}

fn spec_of_more(more: &MoreKeys) -> raw::RedisModuleCommandKeySpec {
    match *more {
        MoreKeys::Rest => {
            let mut spec = spec_at_index(2, KeyUse::Read);
            spec.fk.range.lastkey = -1;
            spec
        }
        MoreKeys::Behind { word, from, count } => {
            let mut spec = raw::RedisModuleCommandKeySpec {
                flags: flags(KeyUse::Read).unsigned_abs().into(),
                begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_KEYWORD,
                bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
                    keyword: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_2 {
                        keyword: word.as_ptr(),
                        startfrom: from.into(),
                    },
                },
                ..spec_of_one_key()
            };
            spec.fk.range.lastkey = c_int::from(count).saturating_sub(1);
            spec
        }
    }
}

fn spec_of_one_key() -> raw::RedisModuleCommandKeySpec {
    raw::RedisModuleCommandKeySpec {
        find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                lastkey: 0,
                keystep: 1,
                limit: 0,
            },
        },
        ..NO_SPEC
    }
}

const NO_SPEC: raw::RedisModuleCommandKeySpec = raw::RedisModuleCommandKeySpec {
    notes: ptr::null(),
    flags: 0,
    begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INVALID,
    bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
        index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 0 },
    },
    find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_OMITTED,
    fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
        range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
            lastkey: 0,
            keystep: 0,
            limit: 0,
        },
    },
};
