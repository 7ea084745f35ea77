//! A module with a memory error that the tools must report: it writes a byte after the end of a block. It then refuses
//! to load, so nothing else happens.

use std::ffi::{c_int, c_void};
use std::hint::black_box;

/// # Safety
/// There is none; that is the point.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(_: *mut c_void, _: *mut *mut c_void, _: c_int) -> c_int {
    let block: Box<[u8]> = vec![0; black_box(24)].into_boxed_slice();
    // SAFETY: none, on purpose: this writes one byte too far.
    unsafe { *black_box(block.as_ptr().cast_mut()).add(24) = 1 };
    1
}
