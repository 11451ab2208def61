//! The socket of all peers, which tells to which address a datagram came, and sends from any.

use anyhow::{Context, Result, ensure};
use erd_rd::{Part, TxBurst};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;
use rustix::time::Timespec;
use std::io::{ErrorKind, IoSliceMut, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

/// Longest datagrams that the kernel hands over as one.
const DATAGRAMS_BYTES: usize = 64 << 10;
/// Receive buffer asked of the kernel, for the first packets of all peers.
const BUFFER_BYTES: usize = 8 << 20;

/// Datagrams have come: from where, and to which address of this host.
pub struct Received {
    pub from: SocketAddr,
    pub to: Ipv4Addr,
    /// Bytes of each but the last.
    stride: usize,
    len_bytes: usize,
}

/// See the module.
pub struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    port: u16,
    bytes: Vec<u8>,
    /// A datagram to send.
    out: Vec<u8>,
}

/// What the kernel tells of peers that have gone, or of a full buffer, is no error of this socket: the datagram is lost, as on any
/// network.
fn passes(error: &std::io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::ConnectionRefused]
        .contains(&error.kind())
}

impl Socket {
    /// The socket at a port, or at any free one if that is 0.
    pub fn bind(port: u16) -> Result<Socket> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))
            .with_context(|| format!("port {port}"))?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES).context("SO_RCVBUF")?;
        }
        let state = UdpSocketState::new((&socket).into()).context("the socket's options")?;
        let port = socket.local_addr()?.port();
        Ok(Socket { socket, state, port, bytes: vec![0; DATAGRAMS_BYTES], out: Vec::new() })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The datagrams that came last.
    pub fn datagrams(&self, received: &Received) -> impl Iterator<Item = &[u8]> {
        self.bytes[..received.len_bytes].chunks(received.stride)
    }

    /// Takes the next datagrams, if some are there.
    pub fn receive(&mut self) -> Result<Option<Received>> {
        let mut meta = [RecvMeta::default()];
        let got = self.state.recv(
            (&self.socket).into(),
            &mut [IoSliceMut::new(&mut self.bytes)],
            &mut meta,
        );
        match got {
            Err(error) if passes(&error) => return Ok(None),
            got => got.context("receiving")?,
        };
        let [RecvMeta { addr: from, len: len_bytes, stride, dst_ip, .. }] = meta;
        Ok(match dst_ip {
            Some(IpAddr::V4(to)) if len_bytes > 0 => Some(Received { from, to, stride, len_bytes }),
            _ => None,
        })
    }

    /// Sends a burst of one datagram from an address of this host.
    pub fn send(&mut self, from: Ipv4Addr, burst: &TxBurst) -> Result<()> {
        self.write_out(burst)?;
        let datagram = Transmit {
            destination: burst.to,
            ecn: None,
            contents: &self.out,
            segment_size: None,
            src_ip: Some(from.into()),
        };
        match self.state.try_send((&self.socket).into(), &datagram) {
            Err(error) if passes(&error) => Ok(()),
            sent => sent.context("sending"),
        }
    }

    /// Joins the burst's parts. Payload is zeroes.
    fn write_out(&mut self, burst: &TxBurst) -> Result<()> {
        ensure!(
            burst.datagrams == 1,
            "a burst has {} datagrams, where each has a call of its own",
            burst.datagrams
        );
        self.out.clear();
        for part in &burst.parts {
            match *part {
                Part::Inline { start, len_bytes } => {
                    let start = start as usize;
                    self.out.extend_from_slice(&burst.bytes[start..start + len_bytes as usize]);
                }
                Part::Payload { len_bytes, .. } => {
                    self.out.resize(self.out.len() + len_bytes as usize, 0)
                }
            }
        }
        Ok(())
    }
}

/// True if the program that started this one has closed its end.
pub fn is_over(mut input: impl AsFd + Read) -> Result<bool> {
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = {
        let mut fds = [PollFd::new(&input, PollFlags::IN)];
        poll(&mut fds, Some(&none)).context("poll of the standard input")? > 0
    };
    Ok(ready && input.read(&mut [0; 64]).context("standard input")? == 0)
}
