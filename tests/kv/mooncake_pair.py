"""Two processes with one transfer engine of Mooncake each. KV_PROTOCOL names its transport: efa, which is
libfabric's provider of that name (FI_ERD_PROV_NAME=efa), or tcp, Mooncake's own sockets, to compare with.
With efa, MC_CUSTOM_TOPO_JSON names the file that names the device, and LD_PRELOAD what devices.cpp became.

pair.py says what the two do: python3 mooncake_pair.py [--kill | --bench]
"""

import os
import sys

import pair

PROTOCOL = os.environ.get("KV_PROTOCOL", "efa")
# The engines exchange addresses and keys over a TCP connection of their own.
HOST = "127.0.0.1"
STATES = {0: pair.BUSY, 1: pair.DONE}


class Mooncake:
    """A transfer engine, and memory of the host that it registered."""

    def __init__(self, name, address, length):
        # The package's other modules come first: the flags are for the engine alone.
        import mooncake
        # devices.cpp calls a function of the engine, so the engine's symbols must be visible to it.
        sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
        from mooncake.engine import TransferEngine

        self.opcodes = {
            pair.WRITE: TransferEngine.TransferOpcode.Write, pair.READ: TransferEngine.TransferOpcode.Read,
        }
        self.address, self.length = address, length
        self.engine = TransferEngine()
        self.must(self.engine.initialize(HOST, "P2PHANDSHAKE", PROTOCOL, ""), "initialize")
        self.must(self.engine.register_memory(address, length), "register_memory")
        self.peer = self.peer_address = None

    @staticmethod
    def must(code, what):
        if code != 0:
            raise pair.Failure(f"{what} returned {code}")

    def card(self):
        return f"{HOST}:{self.engine.get_rpc_port()}", self.address

    def meet(self, card):
        self.peer, self.peer_address = card

    def start(self, op, pieces):
        batch = self.engine.batch_transfer_async(
            self.peer,
            [self.address + own for own, _, _ in pieces],
            [self.peer_address + other for _, other, _ in pieces],
            [length for _, _, length in pieces],
            self.opcodes[op],
        )
        return batch, len(pieces)

    def state(self, handle):
        batch, pieces = handle
        # The engine's number for a transfer that it could not start.
        if batch == 0:
            return pair.FAILED
        if pieces == 1:
            return STATES.get(self.engine.transfer_check_status(batch), pair.FAILED)
        # Only the call that waits looks at more than the first piece.
        return pair.DONE if self.engine.get_batch_transfer_status([batch]) == 0 else pair.FAILED

    def idle(self):
        """The engine has threads of its own."""

    def close(self):
        self.must(self.engine.unregister_memory(self.address), "unregister_memory")
        del self.engine


if __name__ == "__main__":
    pair.main(Mooncake)
