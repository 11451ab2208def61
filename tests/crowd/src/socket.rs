//! The socket of all peers, which tells to which address a datagram came, and sends from any.

use anyhow::{Context, Result, ensure};
use erd_rd::{Part, TxBurst};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::io::{Error, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::{mem, ptr};

/// Longest datagram.
const DATAGRAM_BYTES: usize = 2048;
/// Receive buffer asked of the kernel, for the first packets of all peers.
const BUFFER_BYTES: libc::c_int = 8 << 20;
/// Room for one control message with addresses.
const CONTROL_BYTES: usize = 64;

/// A datagram has come: from where, and to which address of this host.
pub struct Received {
    pub from: SocketAddr,
    pub to: Ipv4Addr,
}

/// See the module.
pub struct Socket {
    socket: UdpSocket,
    port: u16,
    bytes: [u8; DATAGRAM_BYTES],
    len_bytes: usize,
    /// A datagram to send.
    out: Vec<u8>,
}

/// Memory of a control message, aligned as the kernel wants it.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> std::io::Result<()> {
    // SAFETY: the option's value is an int that lives during the call, of the length told.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast(),
            mem::size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

fn sockaddr(to: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

impl Socket {
    /// The socket at a port, or at any free one if that is 0.
    pub fn bind(port: u16) -> Result<Socket> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))
            .with_context(|| format!("port {port}"))?;
        socket.set_nonblocking(true)?;
        set(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1).context("IP_PKTINFO")?;
        if set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES).is_err() {
            set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_BYTES).context("SO_RCVBUF")?;
        }
        let port = socket.local_addr()?.port();
        Ok(Socket {
            socket,
            port,
            bytes: [0; DATAGRAM_BYTES],
            len_bytes: 0,
            out: Vec::with_capacity(DATAGRAM_BYTES),
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The datagram that came last.
    pub fn datagram(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }

    /// Takes the next datagram, if one is there.
    pub fn receive(&mut self) -> Result<Option<Received>> {
        let mut control = Control([0; CONTROL_BYTES]);
        let mut from = sockaddr(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let mut iov =
            libc::iovec { iov_base: self.bytes.as_mut_ptr().cast(), iov_len: DATAGRAM_BYTES };
        // SAFETY: all zeroes is a valid msghdr.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_name = ptr::from_mut(&mut from).cast();
        message.msg_namelen = mem::size_of_val(&from) as libc::socklen_t;
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: name, buffer and control message live during the call, and have the lengths told.
        let got = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
        if got < 0 {
            let error = Error::last_os_error();
            // What the kernel tells of peers that have gone is no error of this socket.
            let passes =
                [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::ConnectionRefused];
            return if passes.contains(&error.kind()) {
                Ok(None)
            } else {
                Err(error).context("recvmsg")
            };
        }
        self.len_bytes = got as usize;
        let from = SocketAddrV4::new(
            u32::from_be(from.sin_addr.s_addr).into(),
            u16::from_be(from.sin_port),
        );
        Ok(addressed_to(&message).map(|to| Received { from: from.into(), to }))
    }

    /// Sends a burst of one datagram from an address of this host.
    pub fn send(&mut self, from: Ipv4Addr, burst: &TxBurst) -> Result<()> {
        let SocketAddr::V4(to) = burst.to else { return Ok(()) };
        self.write_out(burst)?;
        let mut to = sockaddr(to);
        let mut control = Control([0; CONTROL_BYTES]);
        let mut iov =
            libc::iovec { iov_base: self.out.as_mut_ptr().cast(), iov_len: self.out.len() };
        let info = libc::in_pktinfo {
            ipi_ifindex: 0,
            ipi_spec_dst: libc::in_addr { s_addr: u32::from(from).to_be() },
            ipi_addr: libc::in_addr { s_addr: 0 },
        };
        // SAFETY: all zeroes is a valid msghdr. The control message has room for one in_pktinfo, and all live during the call.
        let sent = unsafe {
            let mut message: libc::msghdr = mem::zeroed();
            message.msg_name = ptr::from_mut(&mut to).cast();
            message.msg_namelen = mem::size_of_val(&to) as libc::socklen_t;
            message.msg_iov = &raw mut iov;
            message.msg_iovlen = 1;
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(mem::size_of_val(&info) as u32) as _;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::IPPROTO_IP;
            (*head).cmsg_type = libc::IP_PKTINFO;
            (*head).cmsg_len = libc::CMSG_LEN(mem::size_of_val(&info) as u32) as _;
            ptr::write_unaligned(libc::CMSG_DATA(head).cast(), info);
            libc::sendmsg(self.socket.as_raw_fd(), &raw const message, 0)
        };
        if sent < 0 {
            let error = Error::last_os_error();
            // A datagram that the kernel does not take is lost, as on any network.
            let passes =
                [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::ConnectionRefused];
            ensure!(passes.contains(&error.kind()), "sendmsg: {error}");
        }
        Ok(())
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

/// The address of this host to which a datagram came, by its control message.
fn addressed_to(message: &libc::msghdr) -> Option<Ipv4Addr> {
    // SAFETY: the kernel has filled the control message, whose memory the caller still has. Its data need not be aligned.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(message);
        if head.is_null()
            || (*head).cmsg_level != libc::IPPROTO_IP
            || (*head).cmsg_type != libc::IP_PKTINFO
        {
            return None;
        }
        let info: libc::in_pktinfo = ptr::read_unaligned(libc::CMSG_DATA(head).cast());
        Some(u32::from_be(info.ipi_addr.s_addr).into())
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
