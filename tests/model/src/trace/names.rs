//! Numbers for what a run calls by random values: names, session and asker ids, cookies, proofs.

use super::wire::{self, Body as Read};
use crate::packet::{Address, Cookie, Greeting, Id, Key, Name, Proof};
use crate::process::IDS_PER_PROCESS;
use erd_world::record::Packet;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Session ids that no process of the run chose have numbers from here on.
const FOREIGN: Id = 1 << 30;

/// See the module.
#[derive(Default)]
pub(super) struct Names {
    names: BTreeMap<(std::net::IpAddr, u16), Name>,
    processes: u32,
    ids: BTreeMap<u64, Id>,
    foreign: Id,
    askers: BTreeMap<u64, Id>,
    cookies: BTreeMap<u64, Cookie>,
    proofs: BTreeMap<Vec<u8>, Proof>,
}

impl Names {
    /// The number of a name.
    pub(super) fn name(&mut self, name: SocketAddr) -> Name {
        let next = Name::try_from(self.names.len()).expect("a run has few names");
        *self.names.entry((name.ip(), name.port())).or_insert(next)
    }

    /// The first session id of another process.
    pub(super) fn first_id(&mut self) -> Id {
        self.processes += 1;
        (self.processes - 1) * IDS_PER_PROCESS + 1
    }

    /// The number of a session id; 0 for 0.
    pub(super) fn id(&mut self, value: u64) -> Id {
        if value == 0 {
            return 0;
        }
        let foreign = &mut self.foreign;
        *self.ids.entry(value).or_insert_with(|| {
            *foreign += 1;
            FOREIGN + *foreign
        })
    }

    /// A process tells its session id for the first time, or again. False if that is another one's.
    pub(super) fn tell_id(&mut self, value: u64, id: Id) -> bool {
        let is_new_id = !self.ids.values().any(|known| *known == id);
        match self.ids.get(&value) {
            Some(known) => *known == id,
            None if is_new_id => {
                self.ids.insert(value, id);
                true
            }
            None => false,
        }
    }

    /// The session id from which an asker id follows.
    pub(super) fn asker(&mut self, value: u64) -> Id {
        match self.askers.get(&value) {
            Some(id) => *id,
            None => self.id(value),
        }
    }

    /// A process tells its asker id. False if it has told another one for this session.
    pub(super) fn tell_asker(&mut self, value: u64, of: Id) -> bool {
        *self.askers.entry(value).or_insert(of) == of
    }

    /// A process tells a cookie. False if the same value stood for something else.
    pub(super) fn tell_cookie(&mut self, value: u64, cookie: Cookie) -> bool {
        *self.cookies.entry(value).or_insert(cookie) == cookie
    }

    /// What a told cookie covers.
    pub(super) fn cookie(&self, value: u64) -> Option<Cookie> {
        self.cookies.get(&value).copied()
    }

    /// What a cookie in a challenge covers: where nobody told it, something that no process takes.
    pub(super) fn cookie_of_challenge(&self, value: u64) -> Cookie {
        self.cookie(value).unwrap_or_else(|| Names::forged_cookie(value))
    }

    fn forged_cookie(value: u64) -> Cookie {
        let (by, last) = ((Name::MAX, value), 0);
        Cookie { by, name: Name::MAX, session: 0, epoch: 0, last, period: 0 }
    }

    /// A greeting. `None` if no reader takes it.
    pub(super) fn greeting(&mut self, g: &wire::Greeting) -> Option<Greeting> {
        let cookie = (g.cookie != 0)
            .then(|| self.cookie(g.cookie).unwrap_or_else(|| Names::forged_cookie(g.cookie)));
        (g.session != 0).then(|| Greeting {
            session: self.id(g.session),
            epoch: g.epoch,
            incarnation: g.incarnation,
            gave_up: self.id(g.given_up),
            cookie,
            name: self.name(g.name),
        })
    }

    /// The address in a header.
    pub(super) fn address(&mut self, value: u64, body: &Read) -> Address {
        let may_be_asker = matches!(body, Read::Reset { .. } | Read::GoodbyeAck { .. });
        match body {
            Read::Hello(_) => Address::Nobody,
            _ if may_be_asker && self.ids.get(&value).is_none_or(|id| *id > FOREIGN) => {
                Address::Asker(self.asker(value))
            }
            _ => Address::Session(self.id(value)),
        }
    }

    /// A process tells a packet with this proof.
    pub(super) fn tell_proof(&mut self, bytes: &[u8], proof: Proof) {
        if proof != Proof::None {
            self.proofs.insert(bytes.to_vec(), proof);
        }
    }

    /// The proof of a packet that a process with this key hears.
    pub(super) fn proof(&self, key: Option<Key>, packet: &Packet) -> Proof {
        match key {
            None => Proof::None,
            Some(_) => self.proofs.get(&packet.bytes).copied().unwrap_or(Proof::Wrong),
        }
    }
}
