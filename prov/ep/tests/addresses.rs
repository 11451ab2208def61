//! Addresses that come and go while endpoints use them.

use super::node::{Node, Options};
use crate::av::AvFid;
use crate::object;
use erd_core::av::{AddressVector, Member};
use erd_ffi::fi::{FI_ADDR_NOTAVAIL, fi_addr_t};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// An endpoint that learns late: another thread inserts an address before.
struct Late {
    av: Arc<AddressVector>,
    next: SocketAddr,
    given: AtomicU64,
}

impl Member for Late {
    fn peer_removed(&self, _fi_addr: fi_addr_t) {
        let given = self.av.insert_name(self.next, None).expect("room");
        self.given.store(given, Ordering::Relaxed);
    }

    fn names_added(&self) {}

    fn names_changed(&self) {}
}

#[test]
fn an_index_names_nobody_else_before_every_endpoint_was_told_that_it_is_free() {
    let node = Node::new(Options::default());
    // SAFETY: the node's AV is open.
    let av = Arc::clone(unsafe { &object::inner::<AvFid>(node.av()).av });
    let [first, next, last] = [9, 10, 11].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let given = AtomicU64::new(FI_ADDR_NOTAVAIL);
    let late = Arc::new(Late { av: Arc::clone(&av), next, given });
    let member: Weak<dyn Member> = Arc::downgrade(&late) as _;
    let attached = av.attach(member);
    let removed = av.insert_name(first, None).expect("room");
    av.remove(removed).expect("it is there");
    let given = late.given.load(Ordering::Relaxed);
    assert_eq!(av.addr(given), Some(next));
    assert_ne!(given, removed, "an endpoint may take it for the address that was removed");
    assert_eq!(av.insert_name(last, None), Ok(removed), "all were told");
    drop(attached);
}
