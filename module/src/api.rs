//! The server's API as safe Rust: contexts and strings. Together with `key.rs`, this file calls the API on behalf of
//! commands.
//!
//! [`Context`] and [`Text`] carry the lifetime `'a` of the running command, and aren't `Send`: the API belongs to the
//! main thread.

#![allow(unsafe_code)]

use super::server::{server, status};
use redis_module::raw;
use smallvec::SmallVec;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_longlong, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::time::Duration;

/// Reports a duration to the server's latency monitor, which records it if the monitor is enabled and the duration
/// reaches its threshold.
#[cold]
pub(super) fn add_latency(event: &CStr, took: Duration) {
    let ms = c_longlong::try_from(took.as_millis()).unwrap_or(c_longlong::MAX);
    // SAFETY: the name is NUL-terminated, and the server copies it.
    unsafe { server!(RedisModule_LatencyAddSample(event.as_ptr(), ms)) };
}

/// A function that the server calls at an event.
pub(super) type EventCallback =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

/// The context of a running command.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    raw: NonNull<raw::RedisModuleCtx>,
    command: PhantomData<&'a raw::RedisModuleCtx>,
}

/// A string that the server owns while the command runs.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Text<'a> {
    raw: NonNull<raw::RedisModuleString>,
    command: PhantomData<&'a raw::RedisModuleString>,
}

impl<'a> Context<'a> {
    /// # Safety
    /// `raw` is the context that the server passed to the running callback, and `'a` doesn't outlive that callback.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Option<Context<'a>> {
        NonNull::new(raw).map(|raw| Context { raw, command: PhantomData })
    }

    pub(super) fn as_ptr(self) -> *mut raw::RedisModuleCtx {
        self.raw.as_ptr()
    }

    /// Subscribes to a server event. Returns whether the server has this event.
    pub(super) fn subscribe(self, event: u64, callback: EventCallback) -> bool {
        let event = raw::RedisModuleEvent { id: event, dataver: 1 };
        // SAFETY: the callback lives as long as the module, which is never unloaded, and only the server calls it.
        let subscribed =
            unsafe { server!(RedisModule_SubscribeToServerEvent(self.as_ptr(), event, Some(callback))) };
        subscribed == status::OK
    }

    /// The context's `REDISMODULE_CTX_FLAGS_*`.
    pub(super) fn flags(self) -> u32 {
        // SAFETY: the context is valid.
        unsafe { server!(RedisModule_GetContextFlags(self.as_ptr())) as u32 }
    }

    /// Used memory as a fraction of `maxmemory`, as eviction counts it; 0 without a `maxmemory`.
    pub(super) fn used_memory_ratio(self) -> f32 {
        // SAFETY: a plain call.
        unsafe { server!(RedisModule_GetUsedMemoryRatio()) }
    }

    /// Whether the server is refusing writes because it is failing over to a replica or has paused its clients.
    pub(super) fn must_not_write(self) -> bool {
        // SAFETY: a plain call.
        unsafe { server!(RedisModule_AvoidReplicaTraffic()) != 0 }
    }

    /// Whether this cluster node serves these keys. Always true without a cluster.
    pub(super) fn serves(self, keys: &[Text<'_>]) -> bool {
        if self.flags() & raw::REDISMODULE_CTX_FLAGS_CLUSTER == 0 {
            return true;
        }
        // SAFETY: format "v" takes a vector of strings and its length; Text is a transparent pointer to a string. The
        // server returns null for keys in slots that it doesn't own. The reply is freed once.
        unsafe {
            let vector: *const *mut raw::RedisModuleString = keys.as_ptr().cast();
            let (exists, format) = (c"EXISTS".as_ptr(), c"v".as_ptr());
            let reply = server!(RedisModule_Call(self.as_ptr(), exists, format, vector, keys.len()));
            if !reply.is_null() {
                server!(RedisModule_FreeCallReply(reply));
            }
            !reply.is_null()
        }
    }

    /// The number of the selected database.
    pub(super) fn database(self) -> i32 {
        // SAFETY: the context is valid.
        unsafe { server!(RedisModule_GetSelectedDb(self.as_ptr())) }
    }

    /// Selects a database for the rest of this callback.
    pub(super) fn select(self, database: i32) {
        // SAFETY: the context is valid.
        unsafe { server!(RedisModule_SelectDb(self.as_ptr(), database)) };
    }

    /// Whether a server option has this value.
    pub(super) fn is_configured(self, option: &CStr, value: &str) -> bool {
        // SAFETY: format "cc" takes two C strings. The reply is freed once, and its bytes are read before that.
        unsafe {
            let reply = server!(RedisModule_Call(
                self.as_ptr(),
                c"CONFIG".as_ptr(),
                c"cc".as_ptr(),
                c"GET".as_ptr(),
                option.as_ptr()
            ));
            let mut len = 0;
            let text = server!(RedisModule_CallReplyArrayElement(reply, 1));
            let start = if text.is_null() {
                ptr::null()
            } else {
                server!(RedisModule_CallReplyStringPtr(text, &mut len))
            };
            let equal =
                !start.is_null() && std::slice::from_raw_parts(start.cast::<u8>(), len) == value.as_bytes();
            if !reply.is_null() {
                server!(RedisModule_FreeCallReply(reply));
            }
            equal
        }
    }

    /// Unix time in milliseconds, from the server's cached clock if it has one, otherwise from the system clock.
    pub(super) fn now_ms(self) -> u64 {
        // SAFETY: plain calls.
        let ms = unsafe {
            match raw::RedisModule_CachedMicroseconds {
                Some(cached) => cached() / 1000,
                None => server!(RedisModule_Milliseconds()),
            }
        };
        u64::try_from(ms).unwrap_or(0)
    }

    /// Sends the running command, unchanged, to replicas and the AOF.
    #[inline]
    pub(super) fn replicate_verbatim(self) {
        // SAFETY: the context is that of a command.
        unsafe { server!(RedisModule_ReplicateVerbatim(self.as_ptr())) };
    }

    /// Sends a command to replicas and the AOF.
    pub(super) fn replicate(self, name: &CStr, arguments: &[Text<'_>]) {
        // SAFETY: format "v" takes a vector of strings and its length; Text is a transparent pointer to a string.
        unsafe {
            let vector: *const *mut raw::RedisModuleString = arguments.as_ptr().cast();
            server!(RedisModule_Replicate(
                self.as_ptr(),
                name.as_ptr(),
                c"v".as_ptr(),
                vector,
                arguments.len()
            ));
        }
    }

    /// Whether there are replicas, including disconnected ones that might reconnect and resume from the backlog.
    pub(super) fn has_replicas(self) -> bool {
        let fields = [c"connected_slaves", c"repl_backlog_active"];
        self.info(c"replication", fields).into_iter().any(|number| number != Some(0))
    }

    /// Makes the server run a command as if a client had sent it, so that its effects are replicated. An error reply of
    /// the command is returned as the error.
    pub(super) fn call(self, name: &CStr, arguments: &[Text<'_>]) -> Result<(), String> {
        // SAFETY: "v" is as above. "!" replicates. "S" and "M" refuse what the server's state forbids to clients, such
        // as writes without enough replicas, or commands that need memory, if eviction couldn't free enough for the
        // most recent client command. "E" returns every refusal as a reply. The reply is freed once.
        unsafe {
            let vector: *const *mut raw::RedisModuleString = arguments.as_ptr().cast();
            let call = raw::RedisModule_Call;
            let Some(call) = call else { unreachable!("RedisModule_Call is in every server") };
            let reply = call(self.as_ptr(), name.as_ptr(), c"!ESMv".as_ptr(), vector, arguments.len());
            if reply.is_null() {
                return Err(format!("ERR the server did not run {}", name.to_string_lossy()));
            }
            let mut result = Ok(());
            if server!(RedisModule_CallReplyType(reply)) == status::REPLY_ERROR {
                let mut len = 0;
                let text = server!(RedisModule_CallReplyStringPtr(reply, &mut len));
                let text = std::slice::from_raw_parts(text.cast::<u8>(), len);
                result = Err(String::from_utf8_lossy(text).into_owned());
            }
            server!(RedisModule_FreeCallReply(reply));
            result
        }
    }

    /// Tells transactions (WATCH) and client-side caches that the key has changed.
    #[inline]
    pub(super) fn changed(self, key: Text<'a>) {
        // SAFETY: context and key are valid.
        unsafe { server!(RedisModule_SignalModifiedKey(self.as_ptr(), key.as_ptr())) };
    }

    /// Tells subscribers what happened to the key.
    #[inline]
    pub(super) fn notify(self, key: Text<'a>, event: &CStr) {
        // SAFETY: context, key and event are valid.
        unsafe {
            server!(RedisModule_NotifyKeyspaceEvent(
                self.as_ptr(),
                raw::REDISMODULE_NOTIFY_MODULE,
                event.as_ptr(),
                key.as_ptr()
            ))
        };
    }

    /// Values of unsigned fields of an INFO section, in the order of `fields`. `None` for a field that the server
    /// doesn't have.
    pub(super) fn info<const N: usize>(self, section: &CStr, fields: [&CStr; N]) -> [Option<u64>; N] {
        // SAFETY: all strings are NUL-terminated, and the data is freed once.
        unsafe {
            let data = server!(RedisModule_GetServerInfo(self.as_ptr(), section.as_ptr()));
            let values = fields.map(|field| {
                let mut error: c_int = 0;
                let value = server!(RedisModule_ServerInfoGetFieldUnsigned(data, field.as_ptr(), &mut error));
                (error == status::OK).then_some(value)
            });
            server!(RedisModule_FreeServerInfo(self.as_ptr(), data));
            values
        }
    }

    /// Like [`info`](Context::info), but texts.
    pub(super) fn info_texts<const N: usize>(
        self,
        section: &CStr,
        fields: [&CStr; N],
    ) -> [Option<CString>; N] {
        // SAFETY: as above; a field's text belongs to the data, and is copied before the data is freed.
        unsafe {
            let data = server!(RedisModule_GetServerInfo(self.as_ptr(), section.as_ptr()));
            let texts = fields.map(|field| {
                let text = server!(RedisModule_ServerInfoGetFieldC(data, field.as_ptr()));
                (!text.is_null()).then(|| CStr::from_ptr(text).to_owned())
            });
            server!(RedisModule_FreeServerInfo(self.as_ptr(), data));
            texts
        }
    }

    pub(super) fn is_valkey(self) -> bool {
        self.info_texts(c"server", [c"server_name"]) == [Some(c"valkey".to_owned())]
    }
}

/// Cluster routing: the server can ask a command for its keys instead of running it.
impl Context<'_> {
    /// Whether the server is asking for the keys.
    pub(super) fn is_asked_for_keys(self) -> bool {
        // SAFETY: the context is valid.
        unsafe { server!(RedisModule_IsKeysPositionRequest(self.as_ptr())) != 0 }
    }

    /// Declares that the argument at `position` is a key, with flags as in a key spec.
    pub(super) fn key_at(self, position: c_int, flags: c_int) {
        // SAFETY: the context belongs to a request for keys.
        unsafe { server!(RedisModule_KeyAtPosWithFlags(self.as_ptr(), position, flags)) };
    }
}

/// Replies. Nothing may fail after the first of these calls: a half-written reply would desynchronise the client.
impl Context<'_> {
    pub(super) fn reply_wrong_arity(self) {
        // SAFETY: the context is that of a command.
        unsafe { server!(RedisModule_WrongArity(self.as_ptr())) };
    }

    pub(super) fn reply_error(self, text: &str) {
        let text = terminated(text);
        // SAFETY: the text is NUL-terminated. The server sends it as it is and doesn't use it as a format.
        unsafe { server!(RedisModule_ReplyWithError(self.as_ptr(), text.as_ptr().cast())) };
    }

    #[inline]
    pub(super) fn reply_integer(self, value: i64) {
        // SAFETY: the context is that of a command.
        unsafe { server!(RedisModule_ReplyWithLongLong(self.as_ptr(), value as c_longlong)) };
    }

    #[inline]
    pub(super) fn reply_bool(self, value: bool) {
        // SAFETY: as above.
        unsafe { server!(RedisModule_ReplyWithBool(self.as_ptr(), value.into())) };
    }

    pub(super) fn reply_double(self, value: f64) {
        // SAFETY: as above.
        unsafe { server!(RedisModule_ReplyWithDouble(self.as_ptr(), value)) };
    }

    pub(super) fn reply_null(self) {
        // SAFETY: as above.
        unsafe { server!(RedisModule_ReplyWithNull(self.as_ptr())) };
    }

    pub(super) fn reply_bulk(self, bytes: &[u8]) {
        // SAFETY: the server copies the bytes.
        unsafe {
            server!(RedisModule_ReplyWithStringBuffer(self.as_ptr(), bytes.as_ptr().cast(), bytes.len()))
        };
    }

    /// Replies with a simple string. Never use this for user data, which might contain a line break.
    pub(super) fn reply_simple(self, text: &CStr) {
        // SAFETY: the text is NUL-terminated, and the server copies it.
        unsafe { server!(RedisModule_ReplyWithSimpleString(self.as_ptr(), text.as_ptr())) };
    }

    /// Like [`reply_simple`](Context::reply_simple), for the module's own words, which contain no NUL byte.
    pub(super) fn reply_text(self, text: &'static str) {
        let mut text = SmallVec::<[u8; 64]>::from_slice(text.as_bytes());
        text.push(0);
        self.reply_simple(CStr::from_bytes_until_nul(&text).unwrap_or_default());
    }

    /// Announces an array of `len` replies.
    #[inline]
    pub(super) fn reply_array(self, len: usize) {
        // SAFETY: as above.
        unsafe { server!(RedisModule_ReplyWithArray(self.as_ptr(), len as c_long)) };
    }

    /// Announces an array. [`end_array`](Context::end_array) sets its length later.
    pub(super) fn begin_array(self) {
        // SAFETY: the context is valid during this call.
        unsafe { server!(RedisModule_ReplyWithArray(self.as_ptr(), raw::REDISMODULE_POSTPONED_LEN.into())) };
    }

    /// Ends the array that [`begin_array`](Context::begin_array) announced, and sets its length.
    pub(super) fn end_array(self, len: usize) {
        // SAFETY: as above.
        unsafe { server!(RedisModule_ReplySetArrayLength(self.as_ptr(), len as c_long)) };
    }

    /// Announces a map of `len` pairs. RESP2 clients receive a flat array.
    pub(super) fn reply_map(self, len: usize) {
        // SAFETY: as above.
        unsafe { server!(RedisModule_ReplyWithMap(self.as_ptr(), len as c_long)) };
    }
}

/// The text as a C string, cut at its first NUL byte. Texts of up to 63 bytes need no allocation.
fn terminated(text: &str) -> SmallVec<[u8; 64]> {
    let mut bytes = SmallVec::from_slice(text.split('\0').next().unwrap_or_default().as_bytes());
    bytes.push(0);
    bytes
}

impl<'a> Text<'a> {
    /// # Safety
    /// The string lives for `'a`.
    pub(super) unsafe fn new(raw: NonNull<raw::RedisModuleString>) -> Text<'a> {
        Text { raw, command: PhantomData }
    }

    /// The arguments of the running command.
    ///
    /// # Safety
    /// The server passed `argv` and `argc` to the running callback, and `'a` doesn't outlive that callback.
    pub(super) unsafe fn arguments(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> &'a [Text<'a>] {
        let count = usize::try_from(argc).unwrap_or(0);
        if argv.is_null() || count == 0 {
            return &[];
        }
        // SAFETY: `argv` contains `count` non-null pointers, and Text is a transparent non-null pointer.
        unsafe { std::slice::from_raw_parts(argv.cast(), count) }
    }

    pub(super) fn as_ptr(self) -> *mut raw::RedisModuleString {
        self.raw.as_ptr()
    }

    /// The string's bytes.
    #[inline]
    pub(super) fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: the string is valid for 'a, and nothing changes an argument's bytes while its command runs.
        unsafe {
            let start = server!(RedisModule_StringPtrLen(self.as_ptr(), &mut len));
            if start.is_null() { &[] } else { std::slice::from_raw_parts(start.cast(), len) }
        }
    }
}

/// A context for the main thread that doesn't belong to any client.
pub(super) struct Detached {
    raw: NonNull<raw::RedisModuleCtx>,
}

impl Detached {
    /// Makes a context that has this database selected. `ctx` can be any context.
    pub(super) fn new(ctx: Context<'_>, database: i32) -> Option<Detached> {
        // SAFETY: the context is valid. The new context is freed once, by Drop.
        unsafe {
            let raw = NonNull::new(server!(RedisModule_GetDetachedThreadSafeContext(ctx.as_ptr())))?;
            let made = Detached { raw };
            (server!(RedisModule_SelectDb(raw.as_ptr(), database)) == status::OK).then_some(made)
        }
    }

    pub(super) fn context(&self) -> Context<'_> {
        Context { raw: self.raw, command: PhantomData }
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and is freed once.
        unsafe { server!(RedisModule_FreeThreadSafeContext(self.raw.as_ptr())) };
    }
}

/// A string of our own.
pub(super) struct OwnText {
    raw: NonNull<raw::RedisModuleString>,
}

// SAFETY: the string has one owner. The server can create and free a string without a context on any thread.
unsafe impl Send for OwnText {}

impl OwnText {
    pub(super) fn new(bytes: &[u8]) -> OwnText {
        // SAFETY: the server copies the bytes. A string made without a context is ours to free.
        let raw =
            unsafe { server!(RedisModule_CreateString(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len())) };
        match NonNull::new(raw) {
            Some(raw) => OwnText { raw },
            None => unreachable!("the server's allocator for strings does not fail"),
        }
    }

    pub(super) fn as_text(&self) -> Text<'_> {
        Text { raw: self.raw, command: PhantomData }
    }

    /// Takes ownership of a string, for instance one from [`into_ptr`](OwnText::into_ptr). `None` for null.
    ///
    /// # Safety
    /// Nobody else owns the string.
    pub(super) unsafe fn from_ptr(raw: *mut raw::RedisModuleString) -> Option<OwnText> {
        NonNull::new(raw).map(|raw| OwnText { raw })
    }

    /// Returns the string's pointer, and passes ownership to the caller.
    pub(super) fn into_ptr(self) -> *mut raw::RedisModuleString {
        std::mem::ManuallyDrop::new(self).raw.as_ptr()
    }
}

impl Drop for OwnText {
    fn drop(&mut self) {
        // SAFETY: the string is ours, and is freed once.
        unsafe { server!(RedisModule_FreeString(ptr::null_mut(), self.raw.as_ptr())) };
    }
}

/// The pointer to a C string, or null.
pub(super) fn pointer(text: Option<&CStr>) -> *const c_char {
    text.map_or(ptr::null(), CStr::as_ptr)
}
