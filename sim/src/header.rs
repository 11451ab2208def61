//! Headers of the transports that exist in the simulator alone: values that travel with a packet, not bytes.

/// What a packet of a simulated transport says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Header {
    /// Nothing: the header is in the datagram's bytes.
    #[default]
    Bytes,
    /// RoCEv2.
    Roce(RoceHeader),
    /// EQDS.
    Eqds(EqdsHeader),
    /// A stream of an information path.
    Stream(StreamHeader),
}

impl Header {
    /// Bytes that it takes on a link.
    #[must_use]
    pub fn wire_bytes(&self) -> u32 {
        match self {
            Header::Bytes => 0,
            Header::Roce(header) => header.wire_bytes(),
            Header::Eqds(_) => EqdsHeader::WIRE_BYTES,
            Header::Stream(header) => header.wire_bytes(),
        }
    }
}

/// RoCEv2: what its base transport header and those after it say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoceHeader {
    /// Which of the queue pairs between two hosts.
    pub qp: u16,
    /// Number of the packet; of an answer, the one that is expected next.
    pub psn: u32,
    /// What the packet is.
    pub kind: RoceKind,
}

/// What a RoCEv2 packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoceKind {
    /// Data of a message.
    Data {
        /// Which message.
        flow: u32,
        /// Parts that the message has, each on a queue pair of its own.
        parts: u16,
        /// The last packet of its part: an answer is asked for.
        last: bool,
    },
    /// All packets before the number have arrived.
    Ack,
    /// The same, and a later one has come: everything from the number on has to be sent again.
    Nak,
    /// A packet was marked.
    Cnp,
}

impl RoceHeader {
    /// Bytes that the header of a data packet takes on a link.
    pub const DATA_BYTES: u32 = 16;

    /// Base transport header 12, checksum 4; an acknowledgement header 4, the body of a congestion notification 16
    /// (InfiniBand Architecture Specification 1.2.1, annex A17).
    #[must_use]
    pub fn wire_bytes(&self) -> u32 {
        match self.kind {
            RoceKind::Data { .. } => RoceHeader::DATA_BYTES,
            RoceKind::Ack | RoceKind::Nak => 20,
            RoceKind::Cnp => 32,
        }
    }
}

/// EQDS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EqdsHeader {
    /// The sender's number of the message.
    pub message: u32,
    /// What the packet is.
    pub kind: EqdsKind,
}

/// What an EQDS packet is. Pulls count packets, from the beginning of the message on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EqdsKind {
    /// Data of a message.
    Data {
        /// Which packet of the message.
        psn: u32,
        /// Which message, as the tasks number them.
        flow: u32,
        /// Packets of the message.
        packets: u32,
        /// Pulls that the sender asks for, in all.
        target: u32,
    },
    /// The sender asks for pulls without data to send.
    Request {
        /// Which message, as the tasks number them.
        flow: u32,
        /// Packets of the message.
        packets: u32,
        /// Pulls that it asks for, in all, without those for repeats.
        target: u32,
        /// The same, with those that the packets need which the sender takes for lost. Without such packets it is the target.
        with_repeats: u32,
    },
    /// Packets have arrived.
    Ack {
        /// All before this one.
        expected: u32,
        /// And of the 32 from this one on those with a bit.
        base: u32,
        /// See there.
        bits: u32,
        /// A switch has marked the packet.
        marked: bool,
    },
    /// The payload of a packet was cut off.
    Nack {
        /// Which packet.
        psn: u32,
    },
    /// The sender may send.
    Pull {
        /// So many packets in all.
        pulls: u32,
    },
}

impl EqdsHeader {
    /// Bytes on a link of any of them: the message, two numbers and what kind it is. The papers give no format.
    pub const WIRE_BYTES: u32 = 16;
}

/// A stream that stands for TCP. It counts frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamHeader {
    /// A frame. Its bytes are the packet's.
    Frame {
        /// Its place in the stream.
        number: u32,
    },
    /// All frames before this one have arrived.
    Ack {
        /// See there.
        expected: u32,
    },
}

impl StreamHeader {
    /// A TCP header has 20 bytes where UDP's has 8. Frames begin with their length, in 2 bytes.
    #[must_use]
    pub fn wire_bytes(&self) -> u32 {
        match self {
            StreamHeader::Frame { .. } => 14,
            StreamHeader::Ack { .. } => 12,
        }
    }
}
