//! Where a switch of a rail network sends packets, by arithmetic.

use crate::hop::Hop;

/// A switch of a rail network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RailSwitch {
    gpus: u32,
    kind: Kind,
}

/// Which switch it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// In front of this host. Its links lead to the host, to the rail's switch and to the server's.
    Gpu(u32),
    /// Of this server. Its links lead to the server's GPUs.
    Server(u32),
    /// Of a rail. Its links lead to a GPU of each server.
    Rail,
}

/// Links of a switch in front of a host.
const TO_HOST: u32 = 0;
const TO_RAIL: u32 = 1;
const TO_SERVER: u32 = 2;

impl RailSwitch {
    pub(super) fn of_gpu(gpus: u32, host: u32) -> RailSwitch {
        RailSwitch { gpus, kind: Kind::Gpu(host) }
    }

    pub(super) fn of_server(gpus: u32, server: u32) -> RailSwitch {
        RailSwitch { gpus, kind: Kind::Server(server) }
    }

    pub(super) fn of_rail(gpus: u32) -> RailSwitch {
        RailSwitch { gpus, kind: Kind::Rail }
    }

    /// A host nearby, if there is one.
    pub(super) fn near_host(&self) -> Option<u32> {
        match self.kind {
            Kind::Gpu(host) => Some(host),
            Kind::Server(server) => Some(server * self.gpus),
            Kind::Rail => None,
        }
    }

    /// It is the switch in front of a host.
    pub(super) fn has(&self, host: u32) -> bool {
        self.kind == Kind::Gpu(host)
    }

    fn server(&self, host: u32) -> u32 {
        host / self.gpus
    }

    /// Ways from one host to another: the first is the sender's own rail, and the others follow in the order of the rails.
    pub(super) fn choices(&self, from: u32, to: u32) -> u32 {
        if self.server(from) == self.server(to) { 1 } else { self.gpus }
    }

    /// The link for a packet. `pick` chooses one of so many ways, and chooses the same at every switch.
    pub(super) fn link(&self, hop: &Hop, pick: impl FnOnce(u32) -> u32) -> u32 {
        let (from, to) = (hop.from.0, hop.to.0);
        let (to_server, to_place) = (self.server(to), to % self.gpus);
        let rail = || (from + pick(self.gpus)) % self.gpus;
        match self.kind {
            Kind::Rail => to_server,
            Kind::Server(server) => {
                if server == to_server {
                    to_place
                } else {
                    rail()
                }
            }
            Kind::Gpu(host) if host == to => TO_HOST,
            Kind::Gpu(host) => {
                let crosses = self.server(host) != to_server && host % self.gpus == rail();
                if crosses { TO_RAIL } else { TO_SERVER }
            }
        }
    }
}
