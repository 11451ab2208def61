#!/bin/sh
# Runs a program beside two network namespaces, a and b, that the test relay joins:
#     relay.sh MTU RELAY [RELAY OPTION]... -- PROGRAM [ARGUMENT]...
# It runs in name spaces of its own (unshare --net --mount, with --map-root-user for who is not root),
# so nothing of it is left when it ends. The program finds the relay's commands at $RELAY_COMMANDS, a pipe.
set -eu

mtu=$1
shift
relay=$1
shift
mount -t tmpfs none /run
mkdir /run/erd
export RELAY_COMMANDS=/run/erd/commands
mkfifo "$RELAY_COMMANDS"
options=
while [ "$1" != -- ]; do
    options="$options $1"
    shift
done
shift

ip netns add a
ip netns add b
# Real time where that is allowed: how long a process waits for a processor is no part of the network.
rt=
chrt --rr 1 true 2>/run/erd/chrt && rt="chrt --rr 1"
# Open for both, so that the pipe has no end while the relay runs.
$rt "$relay" $options <>"$RELAY_COMMANDS" &
pid=$!
tries=0
until ip link show relay-b >/run/erd/link 2>&1; do
    tries=$((tries + 1))
    kill -0 $pid && [ $tries -lt 500 ]
    sleep 0.02
done
for side in a b; do
    ip link set relay-$side netns $side
    ip -n $side link set relay-$side name wire mtu "$mtu"
    ip -n $side link set lo up
    ip -n $side link set wire up
done
ip -n a address add 10.77.0.1/24 dev wire
ip -n b address add 10.77.0.2/24 dev wire

rc=0
$rt "$@" || rc=$?
echo end >"$RELAY_COMMANDS"
wait $pid
exit $rc
