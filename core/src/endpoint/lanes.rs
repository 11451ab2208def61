//! Entries on their way to shared memory, and bytes read out of local peers' memory (`docs/protocol.md` §12).

use super::host::EpHost;
use super::ops::{Handle, Kind};
use crate::region::Pass;
use erd_port::local::ring::Refused;
use erd_port::local::{Lanes, LinkId, Pulled};
use erd_rd::{Host, Lane, Payload, Pull, Put, RecvToken, SOURCES_MAX, SendToken, Sources};
use libc::iovec;

/// Most pieces of a buffer that bytes are read into at once; more go through the lane.
const PIECES_MAX: usize = 64;

/// The memory of an answer has gone.
struct Lost;

impl EpHost {
    /// Writes an entry: `head`, and what follows it, copied once from where it lies.
    pub(super) fn put_entry(
        &mut self,
        lane: Lane,
        kind: u8,
        head: &[u8],
        payload: Option<Payload>,
    ) -> Put {
        let link = LinkId::numbered(lane.0);
        let Some(mut port) = self.local_port.take() else { return Put::Gone };
        let put = match payload {
            None => port.put(link, kind, head.len(), &mut |write| write(head)),
            Some(Payload::Sources(op)) => self.put_sources(&mut *port, link, (kind, head), op),
            Some(Payload::Bytes { op, offset_bytes, len_bytes }) => {
                let payload = (op, offset_bytes, len_bytes);
                match self.put_bytes(&mut *port, link, (kind, head), payload) {
                    Ok(put) => put,
                    Err(Lost) => {
                        self.local_port = Some(port);
                        return Put::Lost;
                    }
                }
            }
        };
        let put = match put {
            Some(Ok(written)) => Put::Taken(written),
            Some(Err(Refused::Full)) => {
                port.starve(link);
                Put::Full
            }
            Some(Err(Refused::TooLong)) => {
                tracing::warn!("no memory for a longer ring: the session with a local peer ends");
                port.break_off(link);
                Put::Gone
            }
            Some(Err(Refused::Broken)) | None => Put::Gone,
        };
        self.local_port = Some(port);
        put
    }

    fn put_bytes(
        &mut self,
        port: &mut dyn Lanes,
        link: LinkId,
        (kind, head): (u8, &[u8]),
        (token, offset_bytes, len_bytes): (SendToken, u64, u32),
    ) -> Result<Option<Result<u64, Refused>>, Lost> {
        let len = head.len() + len_bytes as usize;
        if let Some(op) = self.send_op(token) {
            return Ok(port.put(link, kind, len, &mut |write| {
                write(head);
                op.pieces(offset_bytes, len_bytes.into(), |piece| {
                    // SAFETY: the piece lies in the operation's memory, which the application lends for reading until
                    // the operation completes, or in its own copy.
                    write(unsafe {
                        std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
                    });
                });
            }));
        }
        // An answer, whose memory may go meanwhile: then the engine withdraws it.
        let mut bytes = std::mem::take(&mut self.answer);
        bytes.clear();
        bytes.resize(len_bytes as usize, 0);
        self.read(token, offset_bytes, &mut bytes);
        if self.gone.pop_if(|gone| *gone == token).is_some() {
            self.answer = bytes;
            return Err(Lost);
        }
        let put = port.put(link, kind, len, &mut |write| {
            write(head);
            write(&bytes);
        });
        self.answer = bytes;
        Ok(put)
    }

    /// Tells where the buffer of an operation is, if it is in few pieces.
    fn put_sources(
        &mut self,
        port: &mut dyn Lanes,
        link: LinkId,
        (kind, head): (u8, &[u8]),
        token: SendToken,
    ) -> Option<Result<u64, Refused>> {
        let (handle, _) = Handle::from_token(token.0);
        if self.send_op(token).is_some_and(|op| op.lent) {
            // The application has its buffer back soon.
            self.copy(handle);
        }
        let (mut sources, mut count) = (Sources::default(), 0);
        if let Some(op) = self.send_op(token) {
            op.pieces(0, op.len_bytes, |piece| {
                if let Some(to) = sources.pieces.get_mut(count) {
                    *to = (piece.iov_base.addr() as u64, piece.iov_len as u64);
                }
                count += 1;
            });
        }
        if let (handle, Kind::Served) = Handle::from_token(token.0)
            && let Some(served) = self.served.get(handle)
        {
            let told = served.each_part(0, served.len_bytes, |pass, at, len| {
                pass.each_part(at, len, |at, len| {
                    if let Some(to) = sources.pieces.get_mut(count) {
                        *to = (at.addr() as u64, len as u64);
                    }
                    count += 1;
                });
                Ok(())
            });
            if told.is_err() || served.copy.is_some() {
                count = 0;
            }
        }
        let count = if count > SOURCES_MAX { 0 } else { count };
        let len = head.len() + count * Sources::PIECE_BYTES;
        port.put(link, kind, len, &mut |write| {
            write(head);
            for (addr, len) in &sources.pieces[..count] {
                write(&addr.to_be_bytes());
                write(&len.to_be_bytes());
            }
        })
    }

    /// Whether the memory of an answer is still open to the peer.
    pub(super) fn is_served(&self, answer: SendToken) -> bool {
        let (handle, Kind::Served) = Handle::from_token(answer.0) else { return false };
        self.served.get(handle).is_some_and(|served| {
            let there = served.each_part(0, served.len_bytes, |_, _, _| Ok(()));
            served.lost.is_none() && there.is_ok()
        })
    }

    /// Reads bytes of a local peer's buffer into a buffer of this side.
    pub(super) fn pull_bytes(
        &mut self,
        lane: Lane,
        from: &Sources,
        offset_bytes: u64,
        to: RecvToken,
        len_bytes: u64,
    ) -> Pull {
        let link = LinkId::numbered(lane.0);
        // Within a look at the lane the port is elsewhere: what follows it reads.
        if self.local_port.is_none() {
            return Pull::Gone;
        }
        let (mut places, mut passes) = (Vec::with_capacity(4), Vec::new());
        if !self.places_of(to, offset_bytes, len_bytes, (&mut places, &mut passes)) {
            return Pull::Never;
        }
        let mut pieces = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; SOURCES_MAX];
        let mut skip = offset_bytes;
        for (to, (addr, len)) in pieces.iter_mut().zip(&from.pieces) {
            let here = skip.min(*len);
            skip -= here;
            let at = addr.wrapping_add(here) as usize;
            to.iov_base = std::ptr::without_provenance_mut(at);
            to.iov_len = (len - here) as usize;
        }
        let Some(port) = &mut self.local_port else { return Pull::Gone };
        // SAFETY: the places are of a buffer that the application lends until its operation ends, or of regions that the
        // passes keep open.
        let pulled = unsafe { port.pull(link, &mut pieces, &mut places, len_bytes as usize) };
        match pulled {
            Pulled::Done => Pull::Done,
            Pulled::Never => Pull::Never,
            Pulled::Gone => Pull::Gone,
        }
    }

    /// The places of a part of a buffer, and what keeps them. False if they are not to be written to so.
    fn places_of(
        &self,
        to: RecvToken,
        offset_bytes: u64,
        len_bytes: u64,
        (places, passes): (&mut Vec<iovec>, &mut Vec<Pass>),
    ) -> bool {
        let mut push = |piece| places.push(piece);
        match Handle::from_token(to.0) {
            (handle, Kind::Own) => {
                let Some(op) = self.under_way.recvs.get(handle) else { return false };
                op.buffers.pieces(offset_bytes, len_bytes, &mut push);
            }
            (handle, Kind::Served) => {
                let Some(served) = self.served.get(handle) else { return false };
                let placed = served.each_part(offset_bytes, len_bytes, |pass, at, len| {
                    pass.each_part(at, len, |at, iov_len| {
                        push(iovec { iov_base: at.cast(), iov_len })
                    });
                    passes.push(pass);
                    Ok(())
                });
                if placed.is_err() {
                    return false;
                }
            }
            (handle, Kind::Result) => {
                let Some(op) = self.sends.get(handle) else { return false };
                op.buffers.pieces(offset_bytes, len_bytes, &mut push);
            }
            (_, Kind::Held) => return false,
        }
        let sum: u64 = places.iter().map(|piece| piece.iov_len as u64).sum();
        sum == len_bytes && places.len() <= PIECES_MAX
    }
}
