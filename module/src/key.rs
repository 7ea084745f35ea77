//! An open key: the value in it, that value's share of the totals that INFO shows, and values of the server's own
//! types.

#![allow(unsafe_code)]

use super::api::{Context, OwnText, Text};
use super::data_type;
use super::server::{server, status};
use bloomery::filter::Contents;
use bloomery_commands::{Access, Key, Stored, Unusable};
use redis_module::raw;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

/// An open key. Nobody else changes the value while the key is open, because commands run one at a time.
pub(super) struct OpenKey<'a, T: Stored> {
    /// Null for a key that doesn't exist and was opened for reading, or that is locked.
    raw: *mut raw::RedisModuleKey,
    name: Text<'a>,
    /// The value in the key, or null for an empty key. It is kept because commands use it up to three times, and
    /// reading it needs two calls.
    value: Result<*mut T, Unusable>,
    /// The value's share of the totals in INFO, as last counted. `None` if it needn't be compared when the key is
    /// closed.
    counted: Option<Contents>,
    /// Whether the key was opened to add an item.
    adds: bool,
    command: PhantomData<&'a raw::RedisModuleKey>,
}

impl<'a, T: Stored> OpenKey<'a, T> {
    #[inline(always)]
    pub(super) fn open(ctx: Context<'a>, name: Text<'a>, access: Access) -> OpenKey<'a, T> {
        let mode = match access {
            Access::Read => raw::REDISMODULE_READ,
            Access::Write | Access::Add => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        // SAFETY: context and name are valid; `Drop` closes the handle once.
        unsafe {
            let raw = server!(RedisModule_OpenKey(ctx.as_ptr(), name.as_ptr(), mode as c_int)).cast();
            let value = Self::value_of(raw, access);
            let counted = match access {
                Access::Read => None,
                Access::Add if Self::is_plain(value) => None,
                Access::Add | Access::Write => Some(Self::contents(value)),
            };
            OpenKey { raw, name, value, counted, adds: access == Access::Add, command: PhantomData }
        }
    }
}

impl<T: Stored> OpenKey<'_, T> {
    /// The value in a key, or null if the key is empty.
    ///
    /// # Safety
    /// `raw` is the handle of an open key, or null.
    #[inline]
    unsafe fn value_of(raw: *mut raw::RedisModuleKey, access: Access) -> Result<*mut T, Unusable> {
        if raw.is_null() {
            // A server may refuse to open a key for writing, unless it is one of the running command's keys.
            return if access == Access::Read { Ok(ptr::null_mut()) } else { Err(Unusable::Locked) };
        }
        // SAFETY: the handle is open. For a key without a module's value the type is null, which isn't ours.
        unsafe {
            if data_type::is_of::<T>(server!(RedisModule_ModuleTypeGetType(raw))) {
                return Ok(server!(RedisModule_ModuleTypeGetValue(raw)).cast());
            }
            if server!(RedisModule_KeyType(raw)) == status::EMPTY {
                return Ok(ptr::null_mut());
            }
        }
        Err(Unusable::WrongType)
    }

    /// A value's share of the totals that INFO shows. Not inlined, because most adds don't need this function, and it
    /// would make the code that opens a key larger.
    ///
    /// # Safety
    /// `value` is the value of a key that is open.
    #[inline(never)]
    unsafe fn contents(value: Result<*mut T, Unusable>) -> Contents {
        // SAFETY: a value of our type is a T that data_type made. It lives until the key is closed or replaced.
        let value = value.ok().and_then(|value| unsafe { value.as_ref() });
        value.map_or_else(Contents::default, T::contents)
    }

    /// Whether an add changes only one of the totals, the number of items, unless the value grows.
    ///
    /// # Safety
    /// `value` is the value of a key that is open.
    #[inline]
    unsafe fn is_plain(value: Result<*mut T, Unusable>) -> bool {
        // SAFETY: as above.
        value.ok().and_then(|value| unsafe { value.as_ref() }).is_some_and(T::is_plain)
    }

    /// Updates the totals in INFO with the changes to the value since it was last counted.
    #[inline]
    fn count(&mut self) {
        if let Some(before) = self.counted {
            // SAFETY: the key is open.
            let now = unsafe { Self::contents(self.value) };
            data_type::has_changed(before, now);
            self.counted = Some(now);
            if let Ok(value) = self.value {
                // SAFETY: as in `value_mut`, and no reference to the value is in use.
                unsafe { data_type::count_for_tenant(value) };
            }
        }
    }

    /// Replaces a value of this data type, if the key has one, and ends the key's time to live, as setting a value
    /// does. The old value is freed here: Valkey since 8.0 would free it some time later, and evict keys until then.
    ///
    /// # Safety
    /// The key is open for writing. If this is true, the server owns `value`.
    unsafe fn replace(&self, data_type: *mut raw::RedisModuleType, value: *mut c_void) -> bool {
        let mut old = ptr::null_mut();
        // SAFETY: the caller's promise. A value of this data type is a T, and the server gives it back, once.
        unsafe {
            let is_replaced = server!(RedisModule_ModuleTypeGetType(self.raw)) == data_type
                && server!(RedisModule_ModuleTypeReplaceValue(self.raw, data_type, value, &mut old))
                    == status::OK;
            if is_replaced {
                data_type::release::<T>(old);
                server!(RedisModule_SetExpire(self.raw, raw::REDISMODULE_NO_EXPIRE.into()));
            }
            is_replaced
        }
    }
}

impl<T: Stored> Key<T> for OpenKey<'_, T> {
    #[inline]
    fn value(&self) -> Result<Option<&T>, Unusable> {
        // SAFETY: a value of our type is a T that data_type made. It lives until the key is closed or replaced.
        Ok(unsafe { self.value?.as_ref() })
    }

    #[inline]
    fn value_mut(&mut self) -> Result<Option<&mut T>, Unusable> {
        // SAFETY: as above. The reference is unique, because we have `&mut self`, and commands run one at a time.
        Ok(unsafe { self.value?.as_mut() })
    }

    #[inline]
    fn added(&mut self, items: u64) {
        if self.counted.is_none() {
            data_type::has_changed(Contents::default(), Contents { items, ..Contents::default() });
        }
    }

    fn compare(&mut self) {
        // SAFETY: the key is open.
        self.counted = self.counted.or_else(|| Some(unsafe { Self::contents(self.value) }));
    }

    fn create(&mut self, value: T) {
        let data_type = data_type::handle_for(&value);
        // The old value is counted now, because it is freed when it is replaced.
        self.count();
        let (value, contents) = data_type::give(value, self.name.bytes());
        // SAFETY: the key is open for writing, and the server takes ownership of the value. If it doesn't, we free it.
        unsafe {
            if self.replace(data_type, value)
                || server!(RedisModule_ModuleTypeSetValue(self.raw, data_type, value)) == status::OK
            {
                self.value = Ok(value.cast());
                self.counted = Some(contents).filter(|_| !(self.adds && Self::is_plain(self.value)));
            } else {
                data_type::release::<T>(value);
            }
        }
    }

    fn convert<R>(&mut self, change: impl FnOnce(&mut T) -> R, take: impl FnOnce(&mut T) -> T) -> Option<R> {
        let raw = self.raw;
        let value = self.value_mut().ok()??;
        let result = data_type::change(value, change);
        let data_type = data_type::handle_for(value);
        // SAFETY: the key is open for writing. Moving the value out leaves an empty one, which the server frees when
        // the new one is set. Setting a value also deletes the key's time to live, so it is read before and set again
        // afterwards.
        unsafe {
            if server!(RedisModule_ModuleTypeGetType(raw)) != data_type {
                let expires = server!(RedisModule_GetAbsExpire(raw));
                let moved = data_type::change(value, take);
                self.create(moved);
                if expires != i64::from(raw::REDISMODULE_NO_EXPIRE) {
                    server!(RedisModule_SetAbsExpire(raw, expires));
                }
            }
        }
        Some(result)
    }
}

/// Keys of the server's own types, for imports.
impl<T: Stored> OpenKey<'_, T> {
    /// Passes the string in the key to `read` and returns the result. A key that doesn't exist counts as an empty
    /// string.
    pub(super) fn string<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Unusable> {
        match self.server_type() {
            status::EMPTY => Ok(read(&[])),
            status::STRING => {
                let mut len = 0;
                // SAFETY: the handle is open. The bytes stay where they are until the key is written or closed.
                let bytes = unsafe {
                    let start =
                        server!(RedisModule_StringDMA(self.raw, &mut len, raw::REDISMODULE_READ as c_int));
                    if start.is_null() { &[] } else { std::slice::from_raw_parts(start.cast::<u8>(), len) }
                };
                Ok(read(bytes))
            }
            _ => Err(Unusable::WrongType),
        }
    }

    /// A field of the hash in the key. `None` if the field or the key doesn't exist.
    pub(super) fn hash_field(&self, field: &CStr) -> Result<Option<Vec<u8>>, Unusable> {
        match self.server_type() {
            status::EMPTY => Ok(None),
            status::HASH => {
                let mut value: *mut raw::RedisModuleString = ptr::null_mut();
                // SAFETY: with this flag the field is a C string. The list ends with null, and we free the value.
                let value = unsafe {
                    server!(RedisModule_HashGet(
                        self.raw,
                        raw::REDISMODULE_HASH_CFIELDS as c_int,
                        field.as_ptr(),
                        &mut value,
                        ptr::null::<c_char>()
                    ));
                    OwnText::from_ptr(value)
                };
                Ok(value.map(|value| value.as_text().bytes().to_vec()))
            }
            _ => Err(Unusable::WrongType),
        }
    }

    /// How many bytes of the value its tenant has; `None` if the key has no value of this module.
    pub(super) fn tenant_bytes(&self) -> Option<u64> {
        // SAFETY: the handle is open or null, and the value isn't read.
        unsafe { data_type::with_share(self.raw, |share, _| share.bytes()) }
    }

    fn server_type(&self) -> c_int {
        if self.raw.is_null() {
            return status::EMPTY;
        }
        // SAFETY: the handle is open.
        unsafe { server!(RedisModule_KeyType(self.raw)) }
    }
}

impl<T: Stored> Drop for OpenKey<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.count();
        // SAFETY: the handle is open and closed once; null is allowed.
        unsafe { server!(RedisModule_CloseKey(self.raw)) };
    }
}
