#!/bin/sh
# Measures over a wire that limits each flow, as networks of clouds do:
#     caps.sh ERD MTU MBPS BURST_KIB [PATHS]...
# Two namespaces, a and b; whatever arrives of a 5-tuple beyond the rate and a burst is dropped. It runs ERD's
# `serve` in a and its `perf` in b, once for each number of paths, and prints what `perf --json` does. It runs in name
# spaces of its own (unshare --net --mount, with --map-root-user for who is not root), so nothing of it is left when
# it ends.
set -eu

erd=$1 mtu=$2 kib=$(($3 * 125000 / 1024)) burst=$4
shift 4
mount -t tmpfs none /run

ip netns add a
ip netns add b
ip link add wire netns a type veth peer name wire netns b
ip -n a address add 10.77.0.1/24 dev wire
ip -n b address add 10.77.0.2/24 dev wire
for side in a b; do
    ip -n $side link set lo up
    ip -n $side link set wire up mtu "$mtu"
    # Packets are dropped one by one, not in the trains that the kernel makes of them.
    ip netns exec $side ethtool -K wire tx-udp-segmentation off tso off gso off gro off
    ip netns exec $side nft -f - <<RULES
table netdev caps {
    set flows {
        type ipv4_addr . inet_proto . inet_service . inet_service
        flags dynamic
        size 4096
        timeout 60s
    }
    chain in {
        type filter hook ingress device wire priority 0
        meta l4proto { tcp, udp } update @flows { ip saddr . ip protocol . th sport . th dport limit rate over $kib kbytes/second burst $burst kbytes } drop
    }
}
RULES
done
sleep 1

for paths in "$@"; do
    FI_ERD_PATHS=$paths ip netns exec a taskset -c 0 timeout 60 "$erd" serve --interface 10.77.0.1 >/run/serve &
    sleep 0.5
    FI_ERD_PATHS=$paths ip netns exec b taskset -c 1 timeout 60 "$erd" perf 10.77.0.1 --sizes 1048576 --seconds 3 --json
    kill $!
    wait $! || true
done
