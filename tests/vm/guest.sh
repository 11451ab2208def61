#!/bin/sh
# Runs in the virtual machine once the host's root is there: two Soft-RoCE devices, rxe0 on v0
# (10.7.0.1) and rxe1 on v1 (10.7.0.2), which are the ends of one veth; then the script in $out.
#
# Both ends are in one network namespace, for Soft-RoCE sends and receives in the first one only
# (rxe_net.c names init_net). The table of local addresses is asked only for what came in, so that
# what one end sends to the other goes over the wire all the same, whatever sends it.
modules=$1
out=$2
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/
grep -q ' /sys sysfs ' /proc/mounts || mount -t sysfs none /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs none /dev/shm

network() {
    for module in crc32_generic veth bonding 8021q bridge sch_netem rdma_rxe ib_uverbs rdma_ucm; do
        modprobe -d "$modules" "$module" || return
    done
    hostname vm
    ip link set lo up
    ip link add v0 mtu 4200 type veth peer name v1 mtu 4200 || return
    sysctl -q net.ipv4.conf.all.rp_filter=0
    for end in 0 1; do
        sysctl -q "net.ipv4.conf.v$end.accept_local=1" "net.ipv4.conf.v$end.rp_filter=0"
        sysctl -q "net.ipv6.conf.v$end.disable_ipv6=1"
        ip address add "10.7.0.$((end + 1))/24" dev "v$end"
        ip link set "v$end" up
        ip rule add pref 10 iif "v$end" lookup local
        ip rule add pref 15 from "10.7.0.$((end + 1))" to "10.7.0.$((end + 1))" lookup local
    done
    ip rule add pref 11 to 127.0.0.0/8 lookup local
    ip rule add pref 20 to 10.7.0.0/24 lookup 100
    ip route add 10.7.0.2 dev v0 src 10.7.0.1 table 100
    ip route add 10.7.0.1 dev v1 src 10.7.0.2 table 100
    ip rule add pref 30 lookup local
    ip rule del pref 0
    rdma link add rxe0 type rxe netdev v0 || return
    rdma link add rxe1 type rxe netdev v1
}

status=1
if network > "$out/setup" 2>&1; then
    ulimit -l unlimited
    cd "$(cat "$out/dir")" || exit
    sh "$out/script" > "$out/output" 2>&1
    status=$?
fi
dmesg > "$out/dmesg"
echo "$status" > "$out/status"
sync
echo o > /proc/sysrq-trigger
sleep 60
