//! Names of hosts and services to addresses: `getaddrinfo(3)`.

use crate::sockaddr::{self, Family};
use std::ffi::{CString, NulError, c_char};
use std::net::SocketAddr;
use thiserror::Error;

/// Reason why a name has no address.
#[derive(Debug, Error)]
pub enum ResolveError {
    /// The resolver's answer.
    #[error("cannot resolve the name (getaddrinfo error {0})")]
    Resolver(i32),
    /// The name holds a NUL.
    #[error("the name holds a NUL")]
    Name(#[from] NulError),
    /// The place in the run is beyond the last address, port or number.
    #[error("there is no such address or port")]
    NoSuchPlace,
}

/// A list of the resolver, freed when dropped.
struct List(*mut libc::addrinfo);

impl Drop for List {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: `getaddrinfo` made the list, and this is its only owner.
            unsafe { libc::freeaddrinfo(self.0) };
        }
    }
}

/// Addresses of `node` (loopback if `None`) with the port of `service` (0 if `None`), in the resolver's order. With
/// `numeric` the node is an address in text, and the lookup asks no network.
///
/// # Errors
/// If there are none.
pub fn lookup(
    node: Option<&str>,
    service: Option<&str>,
    family: Option<Family>,
    numeric: bool,
) -> Result<Vec<SocketAddr>, ResolveError> {
    let node = node.map(CString::new).transpose()?;
    let service = service.map(CString::new).transpose()?;
    let text = |name: &Option<CString>| -> *const c_char {
        name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr())
    };
    // SAFETY: an addrinfo is integers and pointers, for which zero is a value.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_family = family.map_or(libc::AF_UNSPEC, |family| family.raw().into());
    hints.ai_socktype = libc::SOCK_DGRAM;
    hints.ai_flags = if numeric { libc::AI_NUMERICHOST } else { 0 };
    let mut list = List(std::ptr::null_mut());
    // SAFETY: the strings and hints outlive the call, and the answer is owned by `list`.
    let rc = unsafe {
        libc::getaddrinfo(text(&node), text(&service), &raw const hints, &raw mut list.0)
    };
    if rc != 0 {
        return Err(ResolveError::Resolver(rc));
    }
    let mut found = Vec::new();
    let mut next = list.0;
    // SAFETY: the resolver's list is valid until it is freed, and ends with NULL.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: an entry's address is as long as it says.
        let addr = unsafe { sockaddr::read(entry.ai_addr.cast(), entry.ai_addrlen as usize) };
        found.extend(addr.ok().flatten());
        next = entry.ai_next;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_no_resolver() {
        let found = lookup(Some("127.0.0.1"), Some("7471"), None, true).expect("numeric");
        assert_eq!(found, ["127.0.0.1:7471".parse().expect("address")]);
        let found = lookup(Some("::1"), None, Some(Family::V6), true).expect("numeric");
        assert_eq!(found, ["[::1]:0".parse().expect("address")]);
    }

    #[test]
    fn what_cannot_be_resolved_is_an_error() {
        for (node, family) in [("no number", None), ("127.0.0.1", Some(Family::V6)), ("a\0b", None)]
        {
            assert!(lookup(Some(node), Some("1"), family, true).is_err(), "{node}");
        }
    }
}
