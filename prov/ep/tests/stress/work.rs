//! The threads' work, round by round. Each round checks its data and leaves nothing behind.

use super::op::Op;
use super::site::{ENDPOINTS, Endpoint, PIECE_BYTES, Place, Site, WORDS, close};
use super::{Random, World};
use crate::ep::tests::node::{Node, Options, ok};
use erd_ffi::fi::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// Around the inline, the eager and the datagram's limit, and of many datagrams.
const SIZES: [usize; 10] = [0, 1, 63, 300, 1500, 4096, 16_385, 70_000, 300_001, PIECE_BYTES];
/// Words of a site that the peers add to and swap.
pub const ADDED: usize = 0;
pub const SWAPPED: usize = 1;

/// A thread's part: operations between endpoints of a site and of its peer.
pub struct Lane {
    pub world: Arc<World>,
    /// Among all lanes.
    pub number: usize,
    pub site: usize,
    pub random: Random,
    /// Rounds so far.
    pub rounds: u64,
}

/// One message with both of its operations.
struct Message {
    tag: u64,
    sent: Vec<u8>,
    got: Vec<u8>,
    send: Arc<Op>,
    recv: Arc<Op>,
}

impl Message {
    fn check(self) {
        let len = self.recv.succeeded("a receive");
        self.send.succeeded("a send");
        assert_eq!(len, self.sent.len());
        assert!(self.got == self.sent, "{len} bytes arrived otherwise than sent");
    }
}

impl Lane {
    fn here(&self) -> &Site {
        &self.world.sites[self.site]
    }

    fn there(&self) -> &Site {
        &self.world.sites[self.world.peer_of(self.site)]
    }

    fn size(&mut self) -> usize {
        SIZES[self.random.below(SIZES.len())]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let first = self.random.below(256);
        (0..len).map(|at| (at * 31 + at / 251 + first) as u8).collect()
    }

    /// A tag that nobody else uses.
    fn tag(&mut self) -> u64 {
        self.rounds << 32 | (self.number as u64) << 24 | self.random.below(1 << 24) as u64
    }

    fn message(&mut self) -> Message {
        let len = self.size();
        let (tag, sent, got) = (self.tag(), self.bytes(len), vec![0; len]);
        Message { tag, sent, got, send: Op::new(), recv: Op::new() }
    }

    /// An endpoint here, one of the peer's, and what each calls the other.
    fn ends(&mut self) -> (Endpoint, fi_addr_t, Endpoint, fi_addr_t) {
        let [from, to] = [(); 2].map(|()| self.random.below(ENDPOINTS));
        let names = &self.world.names;
        let peer = self.world.peer_of(self.site);
        let (there, here) = (names[self.site][peer][to], names[peer][self.site][from]);
        (self.here().ep(from), there, self.there().ep(to), here)
    }

    /// Some messages by tag, posted in any order.
    pub fn tagged(&mut self) {
        let (from, to_there, to, _) = self.ends();
        let count = 1 + self.random.below(6);
        let mut messages: Vec<Message> = (0..count).map(|_| self.message()).collect();
        let early = self.random.below(count + 1);
        for message in &mut messages[..early] {
            to.trecv(&mut message.got, message.tag, &message.recv);
        }
        for message in &messages {
            from.tsend(&message.sent, to_there, message.tag, &message.send);
        }
        for message in messages[early..].iter_mut().rev() {
            to.trecv(&mut message.got, message.tag, &message.recv);
        }
        messages.into_iter().for_each(Message::check);
    }

    /// Some messages in order: no other lane sends untagged ones to this endpoint.
    pub fn untagged(&mut self) {
        let peer = self.world.peer_of(self.site);
        let to_there = self.world.names[self.site][peer][0];
        let (from, to) = (self.here().ep(0), self.there().ep(0));
        let count = 1 + self.random.below(6);
        let mut messages: Vec<Message> = (0..count).map(|_| self.message()).collect();
        for message in &mut messages {
            from.send(&message.sent, to_there, &message.send);
            to.recv(&mut message.got, &message.recv);
        }
        messages.into_iter().for_each(Message::check);
    }

    /// Writes to the peer's memory, and reads it again.
    pub fn memory(&mut self) {
        let (from, to_there, ..) = self.ends();
        let piece = WORDS * size_of::<u64>() + self.number * PIECE_BYTES;
        let len = self.size();
        let at = piece + self.random.below(PIECE_BYTES - len + 1);
        let (sent, mut got) = (self.bytes(len), vec![0; len]);
        let (write, read) = (Op::new(), Op::new());
        let place = Place::of_site(to_there, at);
        from.write(&sent, place, &write);
        write.succeeded("a write");
        from.read(&mut got, place, &read);
        read.succeeded("a read");
        assert!(got == sent, "{len} bytes were read otherwise than written");
    }

    /// Adds to a word of the peer's, and swaps another.
    pub fn atomics(&mut self) {
        let (from, to_there, ..) = self.ends();
        let peer = self.world.peer_of(self.site);
        let place = |word: usize| Place::of_site(to_there, word * size_of::<u64>());
        let (value, mut fetched) = (self.random.below(1000) as u64, 0);
        let (add, fetch, swap) = (Op::new(), Op::new(), Op::new());
        from.add(&value, None, place(ADDED), &add);
        from.add(&value, Some(&mut fetched), place(ADDED), &fetch);
        add.succeeded("an addition");
        fetch.succeeded("a fetching addition");
        let sums = &self.world.sums[peer];
        sums[ADDED].fetch_add(2 * value, Ordering::Relaxed);
        let old = sums[SWAPPED].load(Ordering::Relaxed);
        let mut found = 0;
        from.swap(&[old, old + 1], &mut found, place(SWAPPED), &swap);
        swap.succeeded("a swap");
        if found == old {
            sums[SWAPPED].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A receive is canceled while its message is on its way.
    pub fn cancel(&mut self) {
        let (from, to_there, to, _) = self.ends();
        let mut message = self.message();
        let (again, nothing) = (Op::new(), Op::new());
        let mut none = [0; 8];
        to.trecv(&mut none, message.tag | 1 << 63, &nothing);
        to.trecv(&mut message.got, message.tag, &message.recv);
        from.tsend(&message.sent, to_there, message.tag, &message.send);
        to.cancel(&nothing);
        to.cancel(&message.recv);
        assert_eq!(nothing.ended("a cancel"), Err(FI_ECANCELED));
        match message.recv.ended("a canceled receive") {
            Ok(len) => assert_eq!(len, message.sent.len()),
            Err(error) => {
                assert_eq!(error, FI_ECANCELED);
                to.trecv(&mut message.got, message.tag, &again);
                again.succeeded("a receive");
            }
        }
        message.send.succeeded("a send");
        assert!(message.got == message.sent, "a message that was first canceled");
    }

    /// An endpoint is closed with operations outstanding at both ends; what it used is freed at once.
    pub fn closing(&mut self) {
        let (_, _, there, _) = self.ends();
        let (ep, name) = self.here().open_ep();
        let [to_there, to_new] = [self.there_from_here(there), self.there().knows(&name)];
        let mut messages = [(); 3].map(|()| self.message());
        let [out, back, never] = &mut messages;
        let expected = out.sent.clone();
        there.trecv(&mut out.got, out.tag, &out.recv);
        ep.trecv(&mut back.got, back.tag, &back.recv);
        ep.trecv(&mut never.got, never.tag, &never.recv);
        ep.tsend(&out.sent, to_there, out.tag, &out.send);
        there.tsend(&back.sent, to_new, back.tag, &back.send);
        thread::sleep(Duration::from_micros(self.random.below(3000) as u64));
        close(ep.0.cast());
        back.got = Vec::new();
        never.got = Vec::new();
        out.sent = Vec::new();
        there.cancel(&out.recv);
        if out.recv.ended("a receive from a closed endpoint").is_ok() {
            assert!(out.got == expected, "a message of a closed endpoint");
        }
        let _ = back.send.ended("a send to a closed endpoint");
        self.there().forgets(to_new);
        // Completions of the closed endpoint's may still be in the queue.
        let [out, back, never] = messages;
        self.world.keep([out.send, back.recv, never.recv]);
    }

    fn there_from_here(&self, there: Endpoint) -> fi_addr_t {
        self.here().knows(&Node::name_of(there.0))
    }

    /// A registration is closed, and its memory freed, while a peer reads and writes it.
    pub fn deregistering(&mut self) {
        let (_, _, there, to_here) = self.ends();
        let len = self.size().max(1);
        let mut exposed = self.bytes(len);
        let key = self.tag();
        let region = self.here().register(exposed.as_mut_ptr().cast(), len, key);
        let (mut got, sent) = (vec![0; len], self.bytes(len));
        let (read, write) = (Op::new(), Op::new());
        let place = Place { peer: to_here, key, at: 0 };
        there.read(&mut got, place, &read);
        there.write(&sent, place, &write);
        thread::sleep(Duration::from_micros(self.random.below(3000) as u64));
        close(region.cast());
        drop(exposed);
        let _ = read.ended("a read of closed memory");
        let _ = write.ended("a write to closed memory");
    }

    /// A domain is opened, is sent a message, and closes.
    pub fn domains(&mut self) {
        let address = self.world.address_of(self.site);
        let node = Node::new(Options { address, ..Options::NONE });
        let (_, _, there, _) = self.ends();
        let to_new = self.there().knows(&node.name());
        let mut message = self.message();
        ok("trecv", node.trecv(&mut message.got, message.tag, 0, 1));
        there.tsend(&message.sent, to_new, message.tag, &message.send);
        message.send.succeeded("a send to a new domain");
        let done = node.next(&[]).expect("a message");
        assert_eq!(done.len, message.sent.len());
        assert!(message.got == message.sent, "a message to a new domain");
        drop(node);
        self.there().forgets(to_new);
    }
}
