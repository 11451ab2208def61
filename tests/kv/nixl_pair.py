"""Two processes with one NIXL agent each. KV_BACKEND names the engine's backend: LIBFABRIC, whose provider
is libfabric's choice (FI_PROVIDER_PATH, FI_PROVIDER, FI_ERD_PROV_NAME), or UCX to compare with.

pair.py says what the two do: python3 nixl_pair.py [--kill | --bench]
"""

import os

import pair

BACKEND = os.environ.get("KV_BACKEND", "LIBFABRIC")
# The engines that use NIXL tell the peer of each transfer. Over libfabric the peer keeps a record of each write until it
# is told, and goes through all of them for each arrival.
NOTICE = b"moved"
STATES = {"DONE": pair.DONE, "PROC": pair.BUSY, "ERR": pair.FAILED}


class Nixl:
    """An agent, and memory of the host that it registered."""

    def __init__(self, name, address, length):
        # The peer process loads the engine for itself.
        from nixl_cu12 import nixl_agent, nixl_agent_config

        self.address = address
        self.agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=True, backends=[]))
        self.agent.create_backend(BACKEND)
        self.registered = self.agent.register_memory([(address, length, 0, "")], "DRAM")
        self.peer = self.peer_address = None

    def card(self):
        return self.agent.get_agent_metadata(), self.address

    def meet(self, card):
        metadata, self.peer_address = card
        self.peer = self.agent.add_remote_agent(metadata)
        self.peer = self.peer.decode() if isinstance(self.peer, bytes) else self.peer

    def descriptors(self, places):
        return self.agent.get_xfer_descs([(at, length, 0) for at, length in places], "DRAM")

    def start(self, op, pieces):
        own = self.descriptors([(self.address + own, length) for own, _, length in pieces])
        other = self.descriptors([(self.peer_address + other, length) for _, other, length in pieces])
        try:
            transfer = self.agent.initialize_xfer(op, own, other, self.peer, NOTICE)
            return [transfer, self.agent.transfer(transfer)]
        except Exception as error:
            print(f"NIXL: {error}", flush=True)
            return [None, "ERR"]

    def state(self, handle):
        transfer, state = handle
        if state == "PROC":
            try:
                state = self.agent.check_xfer_state(transfer)
            except Exception as error:
                print(f"NIXL: {error}", flush=True)
                state = "ERR"
        if state != "PROC" and transfer:
            self.release(transfer)
        return STATES[state]

    def release(self, transfer):
        try:
            self.agent.release_xfer_handle(transfer)
        except Exception as error:
            print(f"NIXL: {error}", flush=True)

    def idle(self):
        self.agent.get_new_notifs()

    def close(self):
        self.agent.deregister_memory(self.registered)
        del self.agent


if __name__ == "__main__":
    pair.main(Nixl)
