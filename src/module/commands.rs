//! Registration of the commands, and the entry function through which the server calls each of them.

use super::api::{Context, Text, pointer};
use super::call::ServerCall;
use super::names;
use super::server::{server, status};
use super::{guard, reply, waiting};
use crate::command::table::{Argument, ArgumentKind, Entry, KeyUse, MoreKeys, for_each_command, has_blobs};
use crate::command::{Command, CommandError, Reply, TABLE, run};
use redis_module::raw;
use std::ffi::{CString, c_int};
use std::ops::Range;
use std::ptr;

type Callback =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// Pairs each command with a callback of its own, so that each command is compiled separately.
macro_rules! entries {
    ($($command:ident)*) => { [$((Command::$command, entry::<{ row_of(Command::$command) }>)),*] };
}

const ENTRIES: [(Command, Callback); TABLE.len()] = for_each_command!(entries);

/// The index of the table row that describes a command.
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "evaluated by the compiler")]
const fn row_of(command: Command) -> usize {
    let mut row = 0;
    while TABLE[row].command as usize != command as usize {
        row += 1;
    }
    row
}

#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn command_at(index: usize) -> Command {
    TABLE[index].command
}

/// Whether the server has to ask the command for its keys, because the command's key specs aren't enough. A spec can't
/// tell keys from [blobs](has_blobs). Also, cluster routing ignores a module's specs that search for a word; only ACLs
/// and COMMAND GETKEYS use them.
#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn names_its_keys(index: usize) -> bool {
    matches!(TABLE[index].more_keys, [MoreKeys::Behind { .. } | MoreKeys::RestUnlessBlobs, ..])
}

/// Whether a command writes the key at argument 1. No command writes any other key.
#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn writes(index: usize) -> bool {
    !matches!(TABLE[index].key, KeyUse::Read)
}

/// Whether the table flags a command as fast. Reading the clock would be a large part of such a command's time.
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

/// Whether a command runs in pieces if it has many items.
#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn divides(index: usize) -> bool {
    use Command::{Bulkadd, CfInsert, CfInsertnx, CfMexists, Insert, Madd, Mdel, Mexists, Rebuild};
    matches!(
        TABLE[index].command,
        Bulkadd | CfInsert | CfInsertnx | CfMexists | Insert | Madd | Mdel | Mexists | Rebuild
    )
}

/// Ends a call of a command that [can run in pieces](divides). If the call is a piece, hands over its outcome.
/// Otherwise, either continues the command, if items are left, or replies.
fn finish<const INDEX: usize>(call: &ServerCall<'_>, outcome: Result<Reply, CommandError>) {
    let ctx = call.ctx;
    match (call.rest(), outcome) {
        (rest, outcome) if call.is_piece() => {
            waiting::hand_over(outcome, rest);
            ctx.reply_null();
        }
        (Some(rest), Ok(first)) if !first.ends_early() => {
            let writes = !matches!(TABLE.get(INDEX).map(|entry| entry.key), Some(KeyUse::Read));
            waiting::begin_pieces(ctx, (const { command_at(INDEX) }, writes), call.arguments, rest, first);
        }
        (_, outcome) => reply::send(ctx, outcome),
    }
}

/// Whether a command is timed only if it has many arguments, or once it says that it [may be
/// long](crate::command::Call::may_be_long).
#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn is_mostly_short(index: usize) -> bool {
    use Command::{CfAdd, CfAddnx, CfDel, CfInfo, CfInsert, CfInsertnx, CfMexists, CfReserve, CfScandump};
    use Command::{Info, Insert, Madd, Mexists, Reserve, Scandump};
    matches!(
        TABLE[index].command,
        CfAdd
            | CfAddnx
            | CfDel
            | CfInfo
            | CfInsert
            | CfInsertnx
            | CfMexists
            | CfReserve
            | CfScandump
            | Info
            | Insert
            | Madd
            | Mexists
            | Reserve
            | Scandump
    )
}

/// A [mostly short](is_mostly_short) command with at most this number of arguments isn't timed from its start, because
/// reading the clock twice would be a noticeable part of its time: 4% for a BF.MEXISTS of 10 items.
const FEW_ARGUMENTS: usize = 64;

/// Runs a command. Unless it is flagged as fast, reports it to LATENCY if it was timed and took long.
#[inline(always)]
fn run_entry<const INDEX: usize>(call: &ServerCall<'_>) -> Result<Reply, CommandError> {
    let command = const { command_at(INDEX) };
    if const { is_fast(INDEX) } {
        return run(command, call);
    }
    call.reported(|| run(command, call))
}

/// Tells the server which arguments of a command are keys.
fn name_keys(ctx: Context<'_>, entry: &Entry, arguments: &[Text<'_>]) {
    ctx.key_at(1, flags(entry.key));
    for more in entry.more_keys {
        for key in read_keys(more, arguments).filter_map(|key| c_int::try_from(key).ok()) {
            ctx.key_at(key, flags(KeyUse::Read));
        }
    }
}

/// The range of the arguments that name the keys of `more`.
fn read_keys(more: &MoreKeys, arguments: &[Text<'_>]) -> Range<usize> {
    let argc = arguments.len();
    match more {
        MoreKeys::RestUnlessBlobs if has_blobs(argc, arguments.get(2).map_or(&[], |word| word.bytes())) => {
            0..0
        }
        MoreKeys::Rest | MoreKeys::RestUnlessBlobs => 2..argc,
        MoreKeys::Behind { word, from, only, count } => {
            let from = usize::from(*from);
            let is_word = |text: &Text<'_>| text.bytes().eq_ignore_ascii_case(word.to_bytes());
            let most = if *only { 1 } else { argc };
            let Some(word) = arguments.iter().skip(from).take(most).position(is_word) else { return 0..0 };
            let first = word.saturating_add(from).saturating_add(1);
            first..first.saturating_add(usize::from(*count)).min(argc)
        }
    }
}

/// The function that the server calls for command `INDEX` of the table.
unsafe extern "C" fn entry<const INDEX: usize>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server passes the context and the arguments of the running command. Only the arguments of a blocked
    // client are used after the command, and the server keeps those.
    let (Some(ctx), arguments) = (unsafe { (Context::new(ctx), Text::arguments(argv, argc)) }) else {
        return status::ERR;
    };
    let mut call = ServerCall::new(ctx, const { command_at(INDEX) }, arguments);
    if const { divides(INDEX) } {
        call.divide(waiting::is_piece());
    }
    let is_timed = const { !is_fast(INDEX) }
        && (const { !is_mostly_short(INDEX) } || arguments.len() > FEW_ARGUMENTS)
        || call.is_piece();
    if is_timed {
        call.start();
    }
    if const { names_its_keys(INDEX) } && ctx.is_asked_for_keys() {
        if let Some(entry) = TABLE.get(INDEX) {
            guard::call("keys", || name_keys(ctx, entry, arguments), || ());
        }
        return status::OK;
    }
    if const { writes(INDEX) } && waiting::holds_any() {
        let command = const { (command_at(INDEX), divides(INDEX)) };
        let waits = || waiting::waits(ctx, command, arguments);
        if guard::call("waits", waits, || false) {
            return status::OK;
        }
    }
    guard::call(
        "command",
        // When `run` returns, keys are closed and everything that can fail is done.
        || {
            let outcome = call.outcome(run_entry::<INDEX>(&call));
            if let Err(why) = &outcome {
                waiting::count_refusal(why);
            }
            call.announce();
            if const { divides(INDEX) } {
                finish::<INDEX>(&call, outcome);
            } else {
                reply::send(ctx, outcome);
            }
        },
        || {
            call.announce();
            reply::send(ctx, Err(CommandError::Internal));
        },
    );
    status::OK
}

/// Registers every command. The error names what the server refused.
///
/// # Safety
/// `ctx` is the context of a running `RedisModule_OnLoad`.
pub(super) unsafe fn register(ctx: *mut raw::RedisModuleCtx, prefix: &str) -> Result<(), String> {
    // SAFETY: the caller's contract is passed on.
    let has_categories = unsafe { add_categories(ctx) };
    for (index, (entry, name)) in TABLE.into_iter().zip(names::decide(prefix)).enumerate() {
        let callback =
            ENTRIES.iter().find(|(command, _)| *command == entry.command).map(|(_, callback)| *callback);
        let getkeys = if names_its_keys(index) { " getkeys-api" } else { "" };
        let flags = CString::new(format!("{}{getkeys}", entry.flags)).unwrap_or_default();
        // SAFETY: all strings are NUL-terminated and copied by the server.
        unsafe {
            let created =
                server!(RedisModule_CreateCommand(ctx, name.as_ptr(), callback, flags.as_ptr(), 1, 1, 1));
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

/// Creates the ACL categories `bloom` and `cuckoo`. It isn't an error if they exist already. Returns whether the server
/// lets modules have categories.
///
/// # Safety
/// Same as for [`register`].
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
    // SAFETY: the text is NUL-terminated. The server would refuse all categories if it didn't know one of them.
    unsafe {
        if let Some(set) = raw::RedisModule_SetCommandACLCategories {
            set(command, categories.as_ptr());
        }
    }
}

/// Owns the strings and arrays that a command's description points to while the server reads it.
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

    /// An array of arguments that ends with [`NO_ARGUMENT`].
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

/// Tells the server a command's arity, keys and documentation. Returns whether the server accepted them. Without this,
/// every command would need permission to read and write its key, and users who may only read could not call BF.EXISTS.
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
    // Every argument that is a key refers to the second spec, even if a later spec finds it. That is harmless, because
    // the spec's number only appears in COMMAND DOCS.
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

/// The flag that makes the server ask the command itself for its keys.
const INCOMPLETE: u64 = raw::REDISMODULE_CMD_KEY_INCOMPLETE as u64;

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
        MoreKeys::Rest | MoreKeys::RestUnlessBlobs => {
            let mut spec = spec_at_index(2, KeyUse::Read);
            spec.fk.range.lastkey = -1;
            if matches!(more, MoreKeys::RestUnlessBlobs) {
                spec.flags |= INCOMPLETE;
            }
            spec
        }
        MoreKeys::Behind { word, from, only, count } => {
            let mut spec = raw::RedisModuleCommandKeySpec {
                flags: u64::from(flags(KeyUse::Read).unsigned_abs()) | if only { INCOMPLETE } else { 0 },
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
