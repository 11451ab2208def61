//! Permission to send a rendezvous message, link by link (protocol.md §5).

use super::tx::{LINK_BYTES, Transfer};
use super::{Core, Peer, Role};
use crate::host::Host;
use crate::stats::DropReason;
use crate::wire::record::Cts;

impl Peer {
    /// Permission to send a link of a rendezvous message.
    pub(super) fn on_cts<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        cts: Cts,
    ) -> Result<(), DropReason> {
        let mine = self.id.index;
        let op = core
            .ops
            .get_mut(cts.op as usize)
            .filter(|op| op.peer == mine && op.announced && op.order == cts.order)
            .filter(|op| !matches!(op.role, Role::Answer { .. }));
        // An operation that is gone was granted before: this is a repetition.
        let Some(op) = op else { return Ok(()) };
        let end = cts.base_bytes.checked_add(u64::from(cts.len_bytes));
        let fits = end.is_some_and(|end| end <= cts.total_bytes) && cts.total_bytes <= op.len_bytes;
        // Links of other lengths would be as many as the peer likes.
        let is_link = |left: u64| u64::from(cts.len_bytes) == left.min(LINK_BYTES);
        if !fits
            || !is_link(cts.total_bytes - cts.base_bytes)
            || op.wanted_bytes.is_some_and(|wanted| wanted != cts.total_bytes)
        {
            return Err(DropReason::Message);
        }
        if op.wanted_bytes.is_some() && cts.base_bytes < op.granted_bytes {
            return Ok(());
        }
        if cts.base_bytes != op.granted_bytes {
            // Links are granted in order; an earlier grant is still on its way.
            return Err(DropReason::WrongState);
        }
        op.wanted_bytes = Some(cts.total_bytes);
        op.granted_bytes += u64::from(cts.len_bytes);
        if cts.len_bytes > 0 {
            self.tx.transfers.push_back(Transfer {
                op: cts.op,
                msg_id: cts.msg_id,
                base_bytes: cts.base_bytes,
                len_bytes: u64::from(cts.len_bytes),
                done_bytes: 0,
                eager: false,
            });
        }
        self.finish(core, host, cts.op);
        Ok(())
    }
}
