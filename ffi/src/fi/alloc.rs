//! `fi_info` in C memory.
//!
//! Every part is its own `calloc` block, because `fi_freeinfo` of any core frees part by part,
//! and has [`SLACK_BYTES`] of zeros behind it, because the core's `fi_dupinfo` copies as many
//! bytes out of it as its own headers say, which may be more than ours.

use super::nic::Nic;
use super::{
    FI_AV_AUTH_KEY, fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_rx_attr, fi_tx_attr,
    fid, fid_nic,
};
use core::ffi::{c_char, c_void};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

/// Zeroed bytes behind each part, for newer headers than ours to find their fields in.
pub const SLACK_BYTES: usize = 256;

/// `calloc` found no memory; calls answer `-FI_ENOMEM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory")]
pub struct NoMemory;

/// A zeroed `T` with slack, to be freed with `libc::free`.
pub(super) fn calloc<T: Copy>() -> Result<NonNull<T>, NoMemory> {
    // SAFETY: `calloc` has no precondition. It aligns for every C type.
    let block = unsafe { libc::calloc(1, size_of::<T>() + SLACK_BYTES) };
    NonNull::new(block.cast()).ok_or(NoMemory)
}

/// A copy of `bytes`, to be freed with `libc::free`. NULL if there are none.
fn memdup(bytes: &[u8]) -> Result<*mut c_void, NoMemory> {
    if bytes.is_empty() {
        return Ok(core::ptr::null_mut());
    }
    // SAFETY: as in `calloc`.
    let block = unsafe { libc::calloc(1, bytes.len()) };
    let block = NonNull::new(block).ok_or(NoMemory)?;
    // SAFETY: the block is new and as long as `bytes`.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), block.as_ptr().cast(), bytes.len()) };
    Ok(block.as_ptr())
}

/// A C string of `text` up to its first NUL, to be freed with `libc::free`.
pub(super) fn strdup(text: &str) -> Result<*mut c_char, NoMemory> {
    let bytes = text.as_bytes();
    let len_bytes = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    // SAFETY: as in `calloc`; the last byte stays 0.
    let block = unsafe { libc::calloc(1, len_bytes + 1) };
    let block = NonNull::new(block).ok_or(NoMemory)?;
    // SAFETY: the block is new and longer than what is copied.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), block.as_ptr().cast(), len_bytes) };
    Ok(block.as_ptr().cast())
}

/// Replaces a pointer that owns a C block, and frees what it held.
fn replace<T>(place: &mut *mut T, new: *mut T) {
    let old = core::mem::replace(place, new);
    // SAFETY: the places passed here belong to an `Info` and hold NULL or a C block of their own.
    unsafe { libc::free(old.cast()) };
}

/// One `fi_info` with all five attributes, in C memory. `next` is NULL.
pub struct Info(NonNull<fi_info>);

impl Info {
    /// All zeros.
    ///
    /// # Errors
    ///
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        let mut info = Self(calloc()?);
        // From here on a failure drops `info`, which frees what it has so far.
        let raw = info.raw_mut();
        raw.tx_attr = calloc()?.as_ptr();
        raw.rx_attr = calloc()?.as_ptr();
        raw.ep_attr = calloc()?.as_ptr();
        raw.domain_attr = calloc()?.as_ptr();
        raw.fabric_attr = calloc()?.as_ptr();
        Ok(info)
    }

    fn raw_mut(&mut self) -> &mut fi_info {
        // SAFETY: the block is ours alone and holds an initialised `fi_info`.
        unsafe { self.0.as_mut() }
    }

    fn ep_raw(&mut self) -> &mut fi_ep_attr {
        // SAFETY: `new` allocated it, nothing else points to it, and no method takes it away.
        unsafe { &mut *self.raw_mut().ep_attr }
    }

    fn domain_raw(&mut self) -> &mut fi_domain_attr {
        // SAFETY: as in `ep_raw`.
        unsafe { &mut *self.raw_mut().domain_attr }
    }

    fn fabric_raw(&mut self) -> &mut fi_fabric_attr {
        // SAFETY: as in `ep_raw`.
        unsafe { &mut *self.raw_mut().fabric_attr }
    }

    /// The transmit attributes.
    pub fn tx_mut(&mut self) -> &mut fi_tx_attr {
        // SAFETY: as in `ep_raw`.
        unsafe { &mut *self.raw_mut().tx_attr }
    }

    /// The receive attributes.
    pub fn rx_mut(&mut self) -> &mut fi_rx_attr {
        // SAFETY: as in `ep_raw`.
        unsafe { &mut *self.raw_mut().rx_attr }
    }

    /// Sets all endpoint attributes but the authorization key.
    pub fn set_ep(&mut self, attr: &fi_ep_attr) {
        let place = self.ep_raw();
        let (auth_key, auth_key_size) = (place.auth_key, place.auth_key_size);
        *place = fi_ep_attr { auth_key, auth_key_size, ..*attr };
    }

    /// Sets all domain attributes but the name and the authorization key.
    pub fn set_domain(&mut self, attr: &fi_domain_attr) {
        let place = self.domain_raw();
        let (name, auth_key, auth_key_size) = (place.name, place.auth_key, place.auth_key_size);
        *place = fi_domain_attr { name, auth_key, auth_key_size, ..*attr };
    }

    /// Sets all fabric attributes but the names.
    pub fn set_fabric(&mut self, attr: &fi_fabric_attr) {
        let place = self.fabric_raw();
        let (name, prov_name) = (place.name, place.prov_name);
        *place = fi_fabric_attr { name, prov_name, ..*attr };
    }

    /// Sets `caps`.
    pub fn set_caps(&mut self, caps: u64) {
        self.raw_mut().caps = caps;
    }

    /// Sets `addr_format`.
    pub fn set_addr_format(&mut self, addr_format: u32) {
        self.raw_mut().addr_format = addr_format;
    }

    /// Sets `handle`, which is not owned.
    pub fn set_handle(&mut self, handle: *mut fid) {
        self.raw_mut().handle = handle;
    }

    /// Sets the source address; an empty one becomes NULL.
    ///
    /// # Errors
    ///
    /// [`NoMemory`], and nothing is changed; so for all setters below.
    pub fn set_src_addr(&mut self, addr: &[u8]) -> Result<(), NoMemory> {
        let copy = memdup(addr)?;
        let raw = self.raw_mut();
        replace(&mut raw.src_addr, copy);
        raw.src_addrlen = addr.len();
        Ok(())
    }

    /// Sets the destination address; an empty one becomes NULL.
    ///
    /// # Errors
    ///
    /// [`NoMemory`].
    pub fn set_dest_addr(&mut self, addr: &[u8]) -> Result<(), NoMemory> {
        let copy = memdup(addr)?;
        let raw = self.raw_mut();
        replace(&mut raw.dest_addr, copy);
        raw.dest_addrlen = addr.len();
        Ok(())
    }

    /// Sets the domain's name, cut at its first NUL.
    ///
    /// # Errors
    ///
    /// [`NoMemory`].
    pub fn set_domain_name(&mut self, name: &str) -> Result<(), NoMemory> {
        let copy = strdup(name)?;
        replace(&mut self.domain_raw().name, copy);
        Ok(())
    }

    /// Sets the domain's authorization key.
    ///
    /// # Errors
    ///
    /// [`NoMemory`].
    pub fn set_domain_key(&mut self, key: &[u8]) -> Result<(), NoMemory> {
        let place = self.domain_raw();
        set_key(key, &mut place.auth_key, &mut place.auth_key_size)
    }

    /// Sets the endpoint's authorization key.
    ///
    /// # Errors
    ///
    /// [`NoMemory`].
    pub fn set_ep_key(&mut self, key: &[u8]) -> Result<(), NoMemory> {
        let place = self.ep_raw();
        set_key(key, &mut place.auth_key, &mut place.auth_key_size)
    }

    /// The domain leaves authorization keys to address vectors.
    pub fn leave_keys_to_vectors(&mut self) {
        let place = self.domain_raw();
        if place.auth_key.is_null() {
            place.auth_key_size = FI_AV_AUTH_KEY;
        }
    }

    /// Sets the fabric's name, cut at its first NUL.
    ///
    /// # Errors
    ///
    /// [`NoMemory`].
    pub fn set_fabric_name(&mut self, name: &str) -> Result<(), NoMemory> {
        let copy = strdup(name)?;
        replace(&mut self.fabric_raw().name, copy);
        Ok(())
    }

    /// Sets the NIC and closes the one there was.
    pub fn set_nic(&mut self, nic: Option<Nic>) {
        let new = nic.map_or(core::ptr::null_mut(), Nic::into_raw);
        let old = core::mem::replace(&mut self.raw_mut().nic, new);
        // SAFETY: the field holds NULL or a NIC of this `fi_info` alone.
        unsafe { close_nic(old) };
    }

    /// Gives the block to C, which frees it with `fi_freeinfo`.
    #[must_use]
    pub fn into_raw(self) -> *mut fi_info {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: the block is ours alone, and its `next` is NULL.
        unsafe { free_list(self.0.as_ptr()) };
    }
}

/// A list of `fi_info`, as `fi_getinfo` returns it.
pub struct InfoList {
    head: *mut fi_info,
    tail: *mut fi_info,
}

impl InfoList {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { head: core::ptr::null_mut(), tail: core::ptr::null_mut() }
    }

    /// Appends one.
    pub fn push(&mut self, info: Info) {
        let node = info.into_raw();
        if self.head.is_null() {
            self.head = node;
        } else {
            // SAFETY: `tail` is the last block of a list that is ours alone.
            unsafe { (*self.tail).next = node };
        }
        self.tail = node;
    }

    /// Gives the list to C, which frees it with `fi_freeinfo`. NULL if it is empty.
    #[must_use]
    pub fn into_raw(self) -> *mut fi_info {
        ManuallyDrop::new(self).head
    }
}

impl Default for InfoList {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for InfoList {
    fn drop(&mut self) {
        // SAFETY: the list is ours alone.
        unsafe { free_list(self.head) };
    }
}

/// Frees a list and all its parts, as `fi_freeinfo` does.
///
/// # Safety
///
/// `head` must be NULL or a list that this module or libfabric made, used by nobody else.
pub unsafe fn free_list(head: *mut fi_info) {
    let mut next = head;
    while let Some(info) = NonNull::new(next) {
        // SAFETY: the list is valid, so the node and the attributes that are there are, too.
        unsafe {
            let raw = info.as_ref();
            next = raw.next;
            if let Some(ep) = raw.ep_attr.as_ref() {
                libc::free(ep.auth_key.cast());
            }
            if let Some(domain) = raw.domain_attr.as_ref() {
                libc::free(domain.auth_key.cast());
                libc::free(domain.name.cast());
            }
            if let Some(fabric) = raw.fabric_attr.as_ref() {
                libc::free(fabric.name.cast());
                libc::free(fabric.prov_name.cast());
            }
            close_nic(raw.nic);
            for part in [
                raw.src_addr,
                raw.dest_addr,
                raw.tx_attr.cast(),
                raw.rx_attr.cast(),
                raw.ep_attr.cast(),
                raw.domain_attr.cast(),
                raw.fabric_attr.cast(),
            ] {
                libc::free(part);
            }
            libc::free(info.as_ptr().cast());
        }
    }
}

/// Closes a NIC by its own operations.
///
/// # Safety
///
/// `nic` must be NULL or a valid NIC that nobody else uses.
unsafe fn close_nic(nic: *mut fid_nic) {
    // SAFETY: the caller's promise covers the NIC and its table.
    if let Some(ops) = unsafe { nic.as_ref().and_then(|nic| nic.fid.ops.as_ref()) } {
        // SAFETY: a table holds at least `close`. A NIC that will not close is leaked, as
        // libfabric does.
        let _ = unsafe { (ops.close)(nic.cast()) };
    }
}
/// Copies a key to a place that an `fi_info` owns.
fn set_key(key: &[u8], place: &mut *mut u8, place_bytes: &mut usize) -> Result<(), NoMemory> {
    let size_bytes = key.len();
    // SAFETY: memory of any length may be asked for.
    let copy = unsafe { libc::malloc(size_bytes.max(1)) }.cast::<u8>();
    if copy.is_null() {
        return Err(NoMemory);
    }
    // SAFETY: the copy is new, and as long as the key.
    unsafe { core::ptr::copy_nonoverlapping(key.as_ptr(), copy, size_bytes) };
    let old = core::mem::replace(place, copy);
    *place_bytes = size_bytes;
    // SAFETY: the field holds NULL or a key of its `fi_info` alone, from `malloc`.
    unsafe { libc::free(old.cast()) };
    Ok(())
}
