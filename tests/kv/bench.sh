#!/bin/sh
# bench.sh DIRECTORY [OPTION...]: times each engine over each carrier, one after another, and leaves a file of JSON lines for
# each in the directory. The options are those of pair.py beside --bench. With LOSS=1, 1 % of the TCP and UDP packets are lost,
# in a network namespace of its own. table.py makes a table of several such directories.
#
# It uses what the full tier's steps of these engines leave in target/xtask (cargo xtask test --full --only NIXL, and Mooncake),
# so ERD_LIBFABRIC must name the directory of libfabric 2.6 or later.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ -n "${LOSS:-}" ] && [ -z "${INSIDE:-}" ]; then
    # libfabric's tcp wants an interface beside loopback, which then carries the packets all the same.
    exec env INSIDE=1 unshare --net sh -c '
        ip link set lo up
        ip link add v0 type veth peer name v1
        ip address add 10.9.0.1/24 dev v0
        ip link set v0 up
        ip link set v1 up
        nft add table inet loss
        nft add chain inet loss in "{ type filter hook input priority 0; }"
        nft add rule inet loss in meta l4proto "{ tcp, udp }" numgen random mod 100 "<" 1 counter drop
        sh "$@"
        nft list chain inet loss in' sh "$0" "$@"
fi
out=$1
shift
made=$here/../../target/xtask
python=$made/venv-kv/bin/python
release=$made/../release
mkdir -p "$out"

# run NAME VARIABLE... ENGINE: an engine's transfers. One that fails leaves the lines that it had written.
run() {
    name=$1
    shift
    timeout 600 env PYTHONDONTWRITEBYTECODE=1 MC_LOG_LEVEL=ERROR "$@" > "$out/$name.json" 2> "$out/$name.log" || echo "$name ended with $?"
}

nixl() {
    name=$1
    shift
    run "$name" LD_LIBRARY_PATH="$ERD_LIBFABRIC:$made/kv" "$@" "$python" "$here/nixl_pair.py" --bench $options
}

mooncake() {
    name=$1
    shift
    run "$name" LD_LIBRARY_PATH="$ERD_LIBFABRIC" MC_CUSTOM_TOPO_JSON="$made/kv/topology.json" "$@" \
        "$python" "$here/mooncake_pair.py" --bench $options
}

options=$*
erd="FI_PROVIDER_PATH=$release FI_ERD_PROV_NAME=efa FI_ERD_IFACE=lo"
mooncake mooncake-erd $erd FI_ERD_LOCAL=udp LD_PRELOAD="$made/kv/devices.so"
mooncake mooncake-own KV_PROTOCOL=tcp
nixl nixl-erd $erd FI_ERD_LOCAL=udp
nixl nixl-tcp FI_PROVIDER=tcp
nixl nixl-ucx KV_BACKEND=UCX UCX_TLS=tcp UCX_NET_DEVICES=lo
if [ -z "${LOSS:-}" ]; then
    mooncake mooncake-memory $erd LD_PRELOAD="$made/kv/devices.so"
    nixl nixl-memory $erd
fi
