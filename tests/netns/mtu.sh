#!/bin/sh
# Runs a program beside two network namespaces, a and b, on links of jumbo frames, with a path between that
# may carry less:
#     mtu.sh MTU tell|drop -- PROGRAM [ARGUMENT]...
# Two routers, r and s, are joined by the link `path`, with this MTU at first. With `drop` they tell nobody by
# ICMP of packets that are too big. It runs in name spaces of its own (unshare --net --mount, with
# --map-root-user for who is not root), so nothing of it is left when it ends.
set -eu

mtu=$1 icmp=$2
shift 3
mount -t tmpfs none /run

for name in a r s b; do
    ip netns add $name
    ip -n $name link set lo up
done
ip link add wire netns a mtu 9000 type veth peer name host netns r mtu 9000
ip link add wire netns b mtu 9000 type veth peer name host netns s mtu 9000
ip link add path netns r mtu "$mtu" type veth peer name path netns s mtu "$mtu"
ip -n a address add 10.77.1.1/24 dev wire
ip -n r address add 10.77.1.2/24 dev host
ip -n s address add 10.77.2.2/24 dev host
ip -n b address add 10.77.2.1/24 dev wire
ip -n r address add 10.78.0.1/24 dev path
ip -n s address add 10.78.0.2/24 dev path
for name in a b; do ip -n $name link set wire up; done
for router in r s; do
    ip -n $router link set host up
    ip -n $router link set path up
    ip netns exec $router sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    if [ "$icmp" = drop ]; then
        ip netns exec $router nft add table inet quiet
        ip netns exec $router nft add chain inet quiet out '{ type filter hook output priority 0; }'
        ip netns exec $router nft add rule inet quiet out meta l4proto icmp drop
    fi
done
ip -n a route add default via 10.77.1.2
ip -n b route add default via 10.77.2.2
ip -n r route add default via 10.78.0.2
ip -n s route add default via 10.78.0.1

exec "$@"
