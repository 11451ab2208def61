//! Ends of operations: permissions to send, match notices, and what completes (protocol.md §5.3, §5.4).

use super::{Core, Peer, Role};
use crate::host::Host;
use crate::stats::DropReason;
use crate::wire::record::Cts;

impl Peer {
    /// Takes permission to send a link of a rendezvous message.
    pub(super) fn on_cts<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        cts: &Cts,
    ) -> Result<(), DropReason> {
        if let Some(op) = self.tx.out.grant(&mut core.ops, self.id.index, cts)? {
            self.finish(core, host, op);
        }
        Ok(())
    }

    /// Takes a match notice.
    pub(super) fn on_matched<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        op: u32,
        order: u32,
    ) {
        let mine = self.id.index;
        if let Some(entry) = core.ops.get_mut(op as usize)
            && entry.peer == mine
            && entry.announced
            && entry.order == order
        {
            entry.match_notice = false;
            self.finish(core, host, op);
        }
    }

    /// Counts an acknowledged packet of an operation.
    pub(super) fn settle<H: Host>(&mut self, core: &mut Core, host: &mut H, op: u32) {
        core.ops[op as usize].unacked -= 1;
        self.finish(core, host, op);
    }

    /// Completes an operation that has nothing left to do.
    pub(super) fn finish<H: Host>(&mut self, core: &mut Core, host: &mut H, op: u32) {
        if core.ops[op as usize].is_done() {
            if !matches!(core.ops[op as usize].role, Role::Message) {
                self.finish_role(core, host, op);
                return;
            }
            let op = core.ops.remove(op as usize);
            self.tx.out.ended();
            core.stats.messages_sent += 1;
            host.sent(op.token, Ok(()));
        }
    }
}
