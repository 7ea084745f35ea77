//! Registration of the commands, and the entry function through which the server calls each of them.

#![allow(unsafe_code)]

use super::api::{Context, Text, pointer};
use super::call::ServerCall;
use super::names::{self, name_of};
use super::server::{server, status};
use super::{guard, reply, waiting};
use bloomery::Layout;
use bloomery::options::{OptionRow, Value};
use bloomery::spelling::integer;
use bloomery_commands::table::{Argument, ArgumentKind, KeyUse, MoreKeys, has_blobs};
use bloomery_commands::{
    Call, Command, CommandError, DataType, Entry, Family, ForEach, Reply, Stored, Timing, for_each,
};
use redis_module::raw;
use std::ffi::{CStr, CString, c_int};
use std::iter;
use std::mem;
use std::ops::Range;
use std::ptr;

type Callback =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// Whether the server has to ask the command for its keys, because the command's key specs aren't enough. A spec can't
/// tell keys from [blobs](has_blobs). Also, cluster routing ignores a module's specs that search for a word or read a
/// number; only ACLs and COMMAND GETKEYS use them.
const fn names_its_keys(entry: &Entry) -> bool {
    matches!(entry.more_keys, [MoreKeys::Behind { .. } | MoreKeys::RestUnlessBlobs | MoreKeys::Counted, ..])
}

/// Ends a call of a command that can run in pieces. If the call is a piece, hands over its outcome.
/// Otherwise, either continues the command, if items are left, or replies.
fn finish(call: &ServerCall<'_>, outcome: Result<Reply, CommandError>) {
    let ctx = call.ctx;
    match (call.rest(), outcome) {
        (rest, outcome) if call.is_piece() => {
            waiting::hand_over(outcome, rest);
            ctx.reply_null();
        }
        (Some(rest), Ok(first)) if !first.ends_early() => {
            waiting::begin_pieces(ctx, call.command, call.arguments, rest, first);
        }
        // Nobody reads it. CMS.INCRBY's replies may contain errors though nothing failed, and a server with
        // `propagation-error-behavior panic` would stop.
        (_, Ok(_)) if call.command.writes() && call.is_from_primary() => reply::send(ctx, Ok(Reply::Ok)),
        (_, outcome) => reply::send(ctx, outcome),
    }
}

/// A command that is timed [if it is long](Timing::IfLong) and has at most this number of arguments isn't timed from
/// its start, because reading the clock twice would be a noticeable part of its time: 4% for a BF.MEXISTS of 10 items.
const FEW_ARGUMENTS: usize = 64;

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
        MoreKeys::Counted => {
            let count = arguments.get(2).and_then(|count| integer(count.bytes()));
            let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            // The server reports no keys of a command that claims more than it has.
            3..count.checked_add(3).filter(|end| *end <= argc).unwrap_or(3)
        }
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

/// The function that the server calls for a command.
unsafe extern "C" fn entry<T: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server passes the context and the arguments of the running command. Only the arguments of a blocked
    // client are used after the command, and the server keeps those.
    let (Some(ctx), arguments) = (unsafe { (Context::new(ctx), Text::arguments(argv, argc)) }) else {
        return status::ERR;
    };
    let mut call = ServerCall::new(ctx, const { &T::ENTRY }, arguments);
    if const { T::ENTRY.in_pieces } {
        call.divide(waiting::is_piece());
    }
    let is_timed = match const { T::ENTRY.timing } {
        Timing::Never => false,
        Timing::IfLong => arguments.len() > FEW_ARGUMENTS,
        Timing::Always => true,
    };
    if is_timed || call.is_piece() {
        call.start();
    }
    if const { names_its_keys(&T::ENTRY) } && ctx.is_asked_for_keys() {
        guard::call("keys", || name_keys(ctx, &T::ENTRY, arguments), || ());
        return status::OK;
    }
    if const { T::ENTRY.writes() } && waiting::holds_any() {
        let waits = || waiting::waits(ctx, call.command, arguments);
        if guard::call("waits", waits, || false) {
            return status::OK;
        }
    }
    guard::call(
        "command",
        // When `run` returns, keys are closed and everything that can fail is done.
        || {
            let outcome = call.outcome(match const { T::ENTRY.timing } {
                Timing::Never => T::run(&call),
                Timing::IfLong | Timing::Always => call.reported(|| T::run(&call)),
            });
            if let Err(why) = &outcome {
                waiting::count_refusal(why);
            }
            call.announce();
            if const { T::ENTRY.in_pieces } {
                finish(&call, outcome);
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

/// Registers the commands of these families, except those whose only data type another module has registered. The
/// error names what the server refused. Returns what the names of the registered commands begin with.
///
/// # Safety
/// `ctx` is the context of a running `RedisModule_OnLoad`.
pub(super) unsafe fn register(
    ctx: *mut raw::RedisModuleCtx,
    prefix: &str,
    families: Vec<&'static str>,
) -> Result<Vec<String>, String> {
    names::decide(prefix, families);
    // SAFETY: the caller's contract is passed on.
    let mut registration = Registration { ctx, family: None, category: None, outcome: Ok(Vec::new()) };
    for_each(&mut registration);
    registration.outcome
}

/// The registration of the commands, up to the first that the server refuses.
struct Registration {
    /// The context of a running `RedisModule_OnLoad`.
    ctx: *mut raw::RedisModuleCtx,
    /// The family whose commands are being registered.
    family: Option<&'static Family>,
    /// The family's ACL category. `None` if the server doesn't let modules have categories.
    category: Option<&'static CStr>,
    /// The names of the families so far, up to the dot, in upper case.
    outcome: Result<Vec<String>, String>,
}

impl ForEach for Registration {
    /// It isn't an error if the category exists already.
    fn family(&mut self, family: &'static Family) {
        self.family = names::is_chosen(family.name).then_some(family);
        if self.family.is_none() {
            return;
        }
        let category = family.category;
        // SAFETY: the context is that of a running `RedisModule_OnLoad`, and the name is NUL-terminated.
        self.category = unsafe { raw::RedisModule_AddACLCategory }.map(|add| {
            // SAFETY: as above.
            unsafe { add(self.ctx, category.as_ptr()) };
            category
        });
    }

    fn data_type<D: DataType>(&mut self) {
        let is_missing = D::Value::handles().first().is_none_or(|handle| handle.get().is_null());
        self.family = self.family.filter(|family| family.has_own_type || !is_missing);
    }

    fn command<T: Command>(&mut self) {
        let (Some(_), Ok(families)) = (self.family, &mut self.outcome) else { return };
        let name = name_of(T::ENTRY.name).to_string_lossy();
        let family = name.split('.').next().unwrap_or_default().to_ascii_uppercase();
        if families.last() != Some(&family) {
            families.push(family);
        }
        if let Err(why) = self.register(&T::ENTRY, entry::<T>) {
            self.outcome = Err(why);
        }
    }
}

impl Registration {
    fn register(&self, entry: &Entry, callback: Callback) -> Result<(), String> {
        let name = name_of(entry.name);
        let getkeys = if names_its_keys(entry) { "getkeys-api" } else { "" };
        let flags = CString::new(entry.all_flags(getkeys)).unwrap_or_default();
        let (ctx, callback) = (self.ctx, Some(callback));
        // SAFETY: the context is that of a running `RedisModule_OnLoad`. All strings are NUL-terminated and copied by
        // the server.
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
            if !describe(command, entry) {
                return Err(format!("the server refused the description of {}", name.to_string_lossy()));
            }
            if let Some(category) = self.category {
                categorize(command, entry, category);
            }
        }
        Ok(())
    }
}

/// # Safety
/// `command` is one of ours, while the module is being loaded.
unsafe fn categorize(command: *mut raw::RedisModuleCommand, entry: &Entry, family: &CStr) {
    let categories = CString::new(entry.all_categories(&family.to_string_lossy())).unwrap_or_default();
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
    fn array(&mut self, mut list: Vec<raw::RedisModuleCommandArg>) -> *mut raw::RedisModuleCommandArg {
        list.push(NO_ARGUMENT);
        self.arguments.push(list.into_boxed_slice());
        self.arguments.last_mut().map_or(ptr::null_mut(), |list| list.as_mut_ptr())
    }

    fn arguments(&mut self, arguments: &[Argument], key_spec: c_int) -> Vec<raw::RedisModuleCommandArg> {
        let mut list = Vec::new();
        for argument in arguments {
            match argument.kind {
                ArgumentKind::Options(rows) => list.extend(rows.iter().map(|row| self.option(row))),
                _ => list.push(self.argument(argument, key_spec)),
            }
        }
        list
    }

    /// An option of a filter, in a block with the options that need it.
    fn option(&mut self, row: &OptionRow) -> raw::RedisModuleCommandArg {
        use raw as r;
        let lower = row.word.to_lowercase();
        let mut option = raw::RedisModuleCommandArg { token: self.text(row.word), ..NO_ARGUMENT };
        let (name, kind) = match row.value {
            Value::Flag | Value::Numbers { .. } => {
                (lower.as_str(), r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN)
            }
            Value::Duration { name } => (name, r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING),
            Value::Integer { name, .. } | Value::UnixTime { name } => {
                (name, r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER)
            }
            Value::PowerOfTwo(_) => {
                (lower.as_str(), r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER)
            }
            Value::Ratio => (lower.as_str(), r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_DOUBLE),
            Value::Hex(_) => (lower.as_str(), r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING),
            Value::Choice(words) => {
                let words = self.words(words.iter().map(|(word, _)| *word));
                option.subargs = self.array(words);
                (lower.as_str(), r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF)
            }
        };
        (option.name, option.type_) = (self.text(name), kind);
        let mut rest: Vec<_> = row.with.iter().map(|row| self.option(row)).collect();
        if let Value::Numbers { name, .. } = row.value {
            rest.push(raw::RedisModuleCommandArg {
                name: self.text(name),
                type_: r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
                flags: raw::REDISMODULE_CMD_ARG_OPTIONAL as c_int,
                ..NO_ARGUMENT
            });
        }
        if !rest.is_empty() {
            rest.insert(0, option);
            option = raw::RedisModuleCommandArg {
                name: self.text(&lower),
                type_: r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
                subargs: self.array(rest),
                ..NO_ARGUMENT
            };
        }
        option.flags |= raw::REDISMODULE_CMD_ARG_OPTIONAL as c_int;
        option
    }

    /// Arguments that are just a word.
    fn words<'w>(&mut self, words: impl Iterator<Item = &'w str>) -> Vec<raw::RedisModuleCommandArg> {
        let word = |word: &str| raw::RedisModuleCommandArg {
            name: self.text(&word.to_lowercase()),
            type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            token: self.text(&word.to_uppercase()),
            ..NO_ARGUMENT
        };
        words.map(word).collect()
    }

    fn argument(&mut self, argument: &Argument, key_spec: c_int) -> raw::RedisModuleCommandArg {
        use raw as r;
        let mut children = Vec::new();
        let kind = match argument.kind {
            ArgumentKind::Text => r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            ArgumentKind::Integer => r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            ArgumentKind::Double => r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_DOUBLE,
            ArgumentKind::Key => r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
            ArgumentKind::PureToken => r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            ArgumentKind::OneOf(list) => {
                children = self.arguments(list, key_spec);
                r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF
            }
            ArgumentKind::Layouts => {
                let words = Layout::ALL.iter().copied().map(Layout::as_str);
                children = self.words(iter::once(Layout::AUTO).chain(words));
                r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF
            }
            ArgumentKind::Block(list) => {
                children = self.arguments(list, key_spec);
                r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK
            }
            // `arguments` puts the options in its place.
            ArgumentKind::Options(_) => r::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
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
            subargs: if children.is_empty() { ptr::null_mut() } else { self.array(children) },
            ..NO_ARGUMENT
        }
    }
}

const NO_ARGUMENT: raw::RedisModuleCommandArg = raw::RedisModuleCommandArg {
    key_spec_index: -1,
    // SAFETY: the other fields are numbers and pointers, which may be 0 and null.
    ..unsafe { mem::zeroed() }
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
    arguments.extend(arena.arguments(entry.arguments, 1));
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
        tips: if entry.writes() || entry.tips.is_empty() { ptr::null() } else { arena.text(entry.tips) },
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
        MoreKeys::Counted => raw::RedisModuleCommandKeySpec {
            find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM,
            fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
                keynum: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 {
                    keynumidx: 0,
                    firstkey: 1,
                    keystep: 1,
                },
            },
            ..spec_at_index(2, KeyUse::Read)
        },
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

// SAFETY: the fields are numbers, unions of numbers, and a pointer that may be null.
const NO_SPEC: raw::RedisModuleCommandKeySpec = unsafe { mem::zeroed() };
