//! Structures of callers that were compiled with older headers.
//!
//! libfabric appended fields to some structures. What a caller allocated ends where its headers
//! end, and the API version that it asked for is the only hint of which headers those were. So
//! fields beyond that version are neither read nor written. A caller may ask for an older API
//! than its headers have; its newer fields are then ignored, as the older API did not have them.
//!
//! The device contexts (`xpu_ctx`, `max_xpu_ctx_cnt`) appeared after 2.6.0 in headers that still
//! called themselves 2.6, so nothing up to 2.6 may touch them.

use super::{
    fi_cntr_attr, fi_cq_attr, fi_cq_err_entry, fi_domain_attr, fi_ep_attr, fi_mr_attr, fi_tx_attr,
    fi_version,
};
use core::ffi::c_void;
use core::mem::{offset_of, size_of};

/// A structure that grew over time.
///
/// # Safety
///
/// All zeros must be a value of the type, and `size_for` must not exceed the size of the
/// structure in the headers of that version.
pub unsafe trait Versioned: Copy {
    /// How many bytes of the structure a caller of `api_version` may be taken to have.
    fn size_for(api_version: u32) -> usize;
}

/// Implements [`Versioned`] from the first field that each version added, oldest first.
macro_rules! versioned {
    ($ty:ident: $(($major:literal, $minor:literal) => $field:ident),+ $(,)?) => {
        // SAFETY: the structures come from `c_structs!`, which only admits zeroable fields; a
        // field's offset is at most the size of the headers that lack it and all later ones.
        unsafe impl Versioned for $ty {
            fn size_for(api_version: u32) -> usize {
                $(if api_version < fi_version($major, $minor) {
                    return offset_of!($ty, $field);
                })+
                size_of::<$ty>()
            }
        }
    };
}

versioned!(fi_tx_attr: (1, 9) => tclass);
versioned!(fi_ep_attr: (1, 5) => auth_key_size, (2, 7) => xpu_ctx);
versioned!(fi_domain_attr:
    (1, 5) => cntr_cnt,
    (1, 9) => tclass,
    (1, 20) => max_ep_auth_key,
    (2, 0) => max_group_id,
    (2, 5) => max_cntr_value,
    (2, 7) => max_xpu_ctx_cnt,
);
versioned!(fi_mr_attr:
    (1, 5) => auth_key_size,
    (1, 9) => iface,
    (1, 19) => hmem_data,
    (1, 22) => page_size,
    (2, 0) => base_mr,
);
versioned!(fi_cq_attr: (2, 7) => xpu_ctx);
versioned!(fi_cntr_attr: (2, 7) => xpu_ctx);
versioned!(fi_cq_err_entry: (1, 5) => err_data_size, (1, 20) => src_addr);

/// Copies what a caller of `api_version` wrote; fields that it does not have are zero.
///
/// # Safety
///
/// `src` must point to the caller's structure, initialised as far as `api_version` reaches.
#[must_use]
pub unsafe fn read<T: Versioned>(src: *const T, api_version: u32) -> T {
    let mut copy = core::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the caller vouches for `size_for` bytes at `src`, and `copy` has at least as many.
    // What is not copied stays zero, and the trait promises that zeros are a value.
    unsafe {
        core::ptr::copy_nonoverlapping(
            src.cast::<u8>(),
            copy.as_mut_ptr().cast::<u8>(),
            T::size_for(api_version),
        );
        copy.assume_init()
    }
}

/// Fills the entry of a caller of `fi_cq_readerr`, see "Error completions" in `fi_cq(3)`.
///
/// From API 1.5 on, a caller that brings a buffer gets `entry.err_data` copied into it, as far as
/// it fits, and else a pointer to ours; before that, always the pointer. `entry.err_data` must
/// therefore live until the CQ is next read.
///
/// Callers read one error after another into one entry, which then names our bytes as a buffer: that
/// counts as none. `is_ours` knows such bytes.
///
/// # Safety
///
/// `dst` must point to the caller's entry and be writable as far as `api_version` reaches. From
/// API 1.5 on, `dst.err_data_size` must be initialised, and `dst.err_data` be writable for that
/// many bytes. `entry.err_data` must be readable for `entry.err_data_size` bytes.
pub unsafe fn write_cq_err(
    dst: *mut fi_cq_err_entry,
    entry: &fi_cq_err_entry,
    api_version: u32,
    is_ours: impl FnOnce(*const c_void) -> bool,
) {
    let mut out = *entry;
    if api_version >= fi_version(1, 5) {
        // SAFETY: the entry reaches at least to `err_data_size` since 1.5, and the caller set both.
        let (buf, room_bytes) = unsafe { ((*dst).err_data, (*dst).err_data_size) };
        if room_bytes > 0 && !buf.is_null() && !is_ours(buf) {
            let len_bytes = room_bytes.min(entry.err_data_size);
            copy_bytes(buf, entry.err_data, len_bytes);
            out.err_data = buf;
            out.err_data_size = len_bytes;
        }
    }
    // SAFETY: `dst` is writable for `size_for` bytes, and `out` is at least as long.
    unsafe {
        core::ptr::copy_nonoverlapping(
            (&raw const out).cast::<u8>(),
            dst.cast::<u8>(),
            fi_cq_err_entry::size_for(api_version),
        );
    }

    /// Copies `len_bytes`, which may be 0 with a NULL source.
    fn copy_bytes(dst: *mut c_void, src: *const c_void, len_bytes: usize) {
        if len_bytes > 0 {
            // SAFETY: the contract of `write_cq_err` covers both ends for this length; the
            // source is ours and the destination the caller's, so they do not overlap.
            unsafe {
                core::ptr::copy_nonoverlapping(src.cast::<u8>(), dst.cast::<u8>(), len_bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_of_1_17_is_not_read_beyond_its_structure() {
        // 192 bytes is what 1.17 has; what lies behind them belongs to someone else.
        let mut attr = fi_domain_attr { tclass: 7, ..fi_domain_attr::ZERO };
        attr.max_ep_auth_key = 99;
        attr.max_xpu_ctx_cnt = 99;
        // SAFETY: a whole structure of ours.
        let seen = unsafe { read(&raw const attr, fi_version(1, 17)) };
        assert_eq!(fi_domain_attr::size_for(fi_version(1, 17)), 192);
        assert_eq!((seen.tclass, seen.max_ep_auth_key, seen.max_xpu_ctx_cnt), (7, 0, 0));
    }

    #[test]
    fn sizes_are_those_of_each_release() {
        let domain = [(1, 17, 192), (1, 20, 200), (2, 0, 208), (2, 5, 224), (2, 6, 224)];
        for (major, minor, size_bytes) in domain {
            assert_eq!(fi_domain_attr::size_for(fi_version(major, minor)), size_bytes);
        }
        let mr = [(1, 9, 80), (1, 18, 80), (1, 19, 88), (1, 22, 96), (2, 0, 112)];
        for (major, minor, size_bytes) in mr {
            assert_eq!(fi_mr_attr::size_for(fi_version(major, minor)), size_bytes);
        }
        assert_eq!(fi_ep_attr::size_for(fi_version(2, 6)), 96);
        assert_eq!(fi_cq_attr::size_for(fi_version(2, 6)), 40);
        assert_eq!(fi_cntr_attr::size_for(fi_version(2, 6)), 24);
        assert_eq!(fi_cq_err_entry::size_for(fi_version(1, 19)), 80);
    }

    #[test]
    fn error_data_goes_to_the_callers_buffer_and_src_addr_only_to_new_callers() {
        let mut data = *b"reason";
        let entry = fi_cq_err_entry {
            err: 5,
            err_data: data.as_mut_ptr().cast(),
            err_data_size: data.len(),
            src_addr: 42,
            ..fi_cq_err_entry::ZERO
        };
        let mut room = [0_u8; 4];
        let mut dst = fi_cq_err_entry {
            err_data: room.as_mut_ptr().cast(),
            err_data_size: room.len(),
            src_addr: 1,
            ..fi_cq_err_entry::ZERO
        };
        // SAFETY: whole structures of ours, buffers as long as stated.
        unsafe { write_cq_err(&raw mut dst, &entry, fi_version(1, 19), |_| false) };
        assert_eq!(&room, b"reas");
        assert_eq!((dst.err, dst.err_data_size, dst.src_addr), (5, 4, 1));

        let mut dst = fi_cq_err_entry::ZERO;
        // SAFETY: as above; there is no buffer.
        unsafe { write_cq_err(&raw mut dst, &entry, fi_version(1, 20), |_| false) };
        assert_eq!((dst.err_data, dst.src_addr), (entry.err_data, 42));
    }

    #[test]
    fn an_entry_that_names_our_bytes_brings_no_buffer() {
        let mut data = *b"reason";
        let entry = fi_cq_err_entry {
            err_data: data.as_mut_ptr().cast(),
            err_data_size: data.len(),
            ..fi_cq_err_entry::ZERO
        };
        // What the last error left: the place is the same, and the text was shorter.
        let mut dst = fi_cq_err_entry { err_data_size: 4, ..entry };
        // SAFETY: whole structures of ours, and bytes as many as stated.
        unsafe {
            write_cq_err(&raw mut dst, &entry, fi_version(1, 20), |at| {
                at == entry.err_data.cast_const()
            })
        };
        assert_eq!((dst.err_data, dst.err_data_size), (entry.err_data, 6));
    }
}
