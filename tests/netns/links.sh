#!/bin/sh
# Runs a program beside two network namespaces, a and b, with links between that the kernel limits:
#     links.sh MTU LINKS MBPS QUEUE_BYTES -- PROGRAM [ARGUMENT]...
# Two routers, r and s, are joined by the links, a token bucket at each end. They choose a link by the hash
# of addresses and ports. It runs in name spaces of its own (unshare --net --mount, with
# --map-root-user for who is not root), so nothing of it is left when it ends.
set -eu

mtu=$1 links=$2 mbps=$3 queue=$4
shift 5
mount -t tmpfs none /run

for name in a r s b; do
    ip netns add $name
    ip -n $name link set lo up
done
ip link add wire netns a type veth peer name host netns r
ip link add wire netns b type veth peer name host netns s
ip -n a address add 10.77.1.1/24 dev wire
ip -n r address add 10.77.1.2/24 dev host
ip -n s address add 10.77.2.2/24 dev host
ip -n b address add 10.77.2.1/24 dev wire
there= back= link=0
while [ $link -lt "$links" ]; do
    ip link add link$link netns r type veth peer name link$link netns s
    ip -n r address add 10.78.$link.1/24 dev link$link
    ip -n s address add 10.78.$link.2/24 dev link$link
    there="$there nexthop via 10.78.$link.2 dev link$link"
    back="$back nexthop via 10.78.$link.1 dev link$link"
    link=$((link + 1))
done
for name in a r s b; do
    for path in $(ip netns exec $name ls /sys/class/net); do
        ip -n $name link set "$path" up
        [ "$path" = lo ] || ip -n $name link set "$path" mtu "$mtu"
        case $path in
        # Two packets of tokens: what a burst sends at once goes out at the rate of the link.
        link*) tc -n $name qdisc add dev "$path" root tbf rate "$mbps"mbit burst $((2 * mtu)) limit "$queue" ;;
        esac
    done
done
ip -n a route add default via 10.77.1.2
ip -n b route add default via 10.77.2.2
ip -n r route add 10.77.2.0/24 $there
ip -n s route add 10.77.1.0/24 $back
for router in r s; do
    ip netns exec $router sh -c 'cd /proc/sys/net/ipv4 && echo 1 >ip_forward && echo 1 >fib_multipath_hash_policy'
done

# Real time where that is allowed: how long a process waits for a processor is no part of the network.
rt=
chrt --rr 1 true 2>/run/chrt && rt="chrt --rr 1"
rc=0
$rt "$@" || rc=$?
link=0
while [ $link -lt "$links" ]; do
    tc -n r -s -j qdisc show dev link$link
    link=$((link + 1))
done
exit $rc
