#!/bin/sh
# Runs in the virtual machine: what programs see on a node of eight RDMA NICs in eight subnets, with a VLAN on the first, a
# bond of two more cards, an Ethernet card without RDMA, and a bridge of containers. Soft-RoCE stands for the NICs. Below
# $OUT/sys is a tree like /sys, with hardware where this machine has none. Each list is left in $OUT/nics.NAME.
# PROVIDERS is the directory of the provider, PROGRAMS that of the C programs.
export FI_PROVIDER=erd FI_PROVIDER_PATH="$PROVIDERS" FI_ERD_TEST_SYSFS="$OUT/sys" FI_ERD_PCI=yes
unset FI_LOG_LEVEL FI_LOG_PROV
tree="$OUT/sys/class"

# card NAME BUS: the hardware of an interface.
card() {
    device="$OUT/sys/devices/pci0000:00/0000:$2:00.0"
    mkdir -p "$device" "$tree/net/$1"
    echo 0x15b3 > "$device/vendor"
    ln -s "$device" "$tree/net/$1/device"
    echo 400000 > "$tree/net/$1/speed"
}

# rdma_card NAME INTERFACE: the RDMA device on the hardware of an interface.
rdma_card() {
    mkdir -p "$tree/infiniband/$1"
    ln -s "$(readlink "$tree/net/$2/device")" "$tree/infiniband/$1/device"
}

# over NAME LOWER...: an interface on others.
over() {
    name=$1
    shift
    mkdir -p "$tree/net/$name"
    for lower in "$@"; do ln -s "../$lower" "$tree/net/$name/lower_$lower"; done
    echo 200000 > "$tree/net/$name/speed"
}

# wire NAME: an interface, with a peer that makes it run.
wire() {
    ip link add "$1" mtu 4200 type veth peer name "$1-far" mtu 4200
    sysctl -q "net.ipv6.conf.$1.disable_ipv6=1"
    ip link set "$1-far" up
}

up() {
    [ -z "$2" ] || ip address add "$2" dev "$1"
    ip link set "$1" up
}

build() {
    rdma link delete rxe0
    rdma link delete rxe1
    ip link delete v0
    for k in 0 1 2 3 4 5 6 7; do
        wire "eth$k" && up "eth$k" "10.20.$k.5/24" && card "eth$k" "1$k" || return
        rdma link add "roce$k" type rxe netdev "eth$k" || return
        rdma_card "roce$k" "eth$k"
    done
    ip link add link eth0 name eth0.7 type vlan id 7 && up eth0.7 10.27.0.5/24 || return
    over eth0.7 eth0
    ip link add bond0 mtu 4200 type bond mode active-backup || return
    for lower in eth8 eth9; do
        wire "$lower" && ip link set "$lower" master bond0 && up "$lower" "" || return
    done
    up bond0 10.28.0.5/24
    card eth8 20
    card eth9 21
    over bond0 eth8 eth9
    rdma link add roce_bond0 type rxe netdev bond0 || return
    rdma_card roce_bond0 eth8
    wire mgmt && up mgmt 192.0.2.5/24 && card mgmt 30 || return
    echo 1000 > "$tree/net/mgmt/speed"
    ip link add docker0 type bridge && wire pod && ip link set pod master docker0 && up pod "" || return
    up docker0 172.17.0.1/16
    mkdir -p "$tree/net/docker0" "$tree/net/pod"
    ln -s ../pod "$tree/net/docker0/lower_pod"
}

# list NAME WORDS...: what a program sees.
list() {
    name=$1
    shift
    "$PROGRAMS/nics" "$@" > "$OUT/nics.$name" 2>&1 || echo "exit status $?" >> "$OUT/nics.$name"
}

if build > "$OUT/nics.build" 2>&1; then
    # The kernel adds the addresses to the devices' tables in a work queue, and a bridge runs once its port forwards.
    for tenth in $(seq 100); do
        list all all
        [ "$(grep -c '^roce' "$OUT/nics.all")" = 10 ] && grep -q '^docker0' "$OUT/nics.all" && break
        sleep 0.1
    done
    list nccl nccl
    list openshmem openshmem
    list domain domain eth3
    FI_ERD_FABRIC="roce*=cluster" list cluster nccl
    FI_ERD_FABRIC=roce0=rail0,roce1=rail1 list rails all
    FI_ERD_PORT=udp list udp all
    "$ERD" info --json > "$OUT/nics.info" 2>> "$OUT/nics.build"
    : > "$OUT/nics.done"
fi
