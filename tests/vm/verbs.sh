#!/bin/sh
# Runs in the virtual machine: the provider over its two Soft-RoCE devices. Each case leaves in $OUT
# NAME.status ("client server"), NAME.output and NAME.stats (erd's counters), which tests/e2e judges.
# PROVIDERS is the directory of the provider, PROGRAMS that of the C programs, MPICH an environment with
# it, DEVICE_TESTS the program with the ports' tests, LIBRARY_TESTS that with the library's, of which
# STRESS is the name of one. SUITE is the directory of mpi4py's tests; empty for
# the short form, which is without them.
# Both devices are in one host, whose memory would carry everything.
export FI_ERD_LOCAL=udp
export FI_PROVIDER_PATH="$PROVIDERS" FI_LOG_LEVEL=warn FI_LOG_PROV=erd
export ERD_TEST_ADDRESSES="10.7.0.1 10.7.0.2" ERD_TEST_SLOWNESS=8
LEFT="FI_ERD_IFACE=v0" RIGHT="FI_ERD_IFACE=v1"

# netem must see single packets.
for end in v0 v1; do ethtool -K "$end" gso off tso off gro off tx-udp-segmentation off; done

# pingpong NAME LEFT RIGHT ARGUMENTS: both sides, the server on rxe0.
pingpong() {
    name=$1 left=$2 right=$3
    shift 3
    env $left FI_ERD_STATS="$OUT/$name.stats" timeout -k 5 120 \
        fi_pingpong -e rdm -p erd -c "$@" > "$OUT/$name.server" 2>&1 &
    server=$!
    sleep 2
    env $right FI_ERD_STATS="$OUT/$name.stats" timeout -k 5 100 \
        fi_pingpong -e rdm -p erd -c "$@" 10.7.0.1 > "$OUT/$name.output" 2>&1
    client=$?
    # A server whose client failed may wait for it on its control connection.
    for tenth in $(seq 150); do
        kill -0 $server 2> /dev/null || break
        sleep 0.1
    done
    kill $server 2> /dev/null
    wait $server
    echo "$client $?" > "$OUT/$name.status"
    cat "$OUT/$name.server" >> "$OUT/$name.output"
}

# program NAME PROGRAM CASES: a C program of tests/c, between the two devices.
program() {
    name=$1
    shift
    env FI_ERD_PORT=verbs FI_ERD_STATS="$OUT/$name.stats" timeout -k 5 200 \
        "$PROGRAMS/$@" > "$OUT/$name.output" 2>&1
    echo "$? 0" > "$OUT/$name.status"
    pkill -9 -f "^$PROGRAMS/" || :
}

verbs_left="$LEFT FI_ERD_PORT=verbs" verbs_right="$RIGHT FI_ERD_PORT=verbs"

tcpdump -i v0 -U -s 0 -w "$OUT/capture.pcap" -c 5000 udp > /dev/null 2>&1 &
sleep 1
# The first case asks who the neighbour is, which a slow machine takes long for: UDP carries its first messages.
pingpong small "$verbs_left" "$verbs_right" -m tagged -S 64 -I 1000
pingpong middle "$verbs_left" "$verbs_right" -m tagged -S 4096 -I 100
program memory memory write_forms read_forms atomic_forms
# Both its endpoints are on one device, which nothing on an interface shows; over UDP they are on the loopback.
tcpdump -i lo -U -s 0 -w "$OUT/memory.pcap" udp > /dev/null 2>&1 &
tcpdump=$!
sleep 1
FI_ERD_PORT=udp timeout -k 5 100 "$PROGRAMS/memory" write_forms read_forms atomic_forms sizes > "$OUT/memory.udp" 2>&1
sleep 1
kill $tcpdump
wait $tcpdump
pingpong large "$verbs_left" "$verbs_right" -m tagged -S 262144 -I 8
# Not the default there, where it gains nothing.
uncopied=FI_ERD_ZERO_COPY_SIZE=4096
# Not one that goes by verbs may be copied. On a busy machine a side may send its first few before it knows how verbs
# reaches the other, and these go over UDP: so more are sent than have to go by verbs, and fewer than 32, of which one
# would be less than the headers may be.
pingpong uncopied "$verbs_left $uncopied" "$verbs_right $uncopied" -m tagged -S 262144 -I 14
export $uncopied FI_PROVIDER=erd
program registered registered
program nccl nccl_sendrecv discovery transfers
unset FI_ERD_ZERO_COPY_SIZE FI_PROVIDER
# With a job's key everything is copied, whatever the setting says.
(umask 077 && printf '%064d\n' 7 > /tmp/job.key)
export FI_ERD_KEY_FILE=/tmp/job.key
tcpdump -i v0 -U -s 0 -w "$OUT/keyed.pcap" -c 300 udp > /dev/null 2>&1 &
sleep 1
pingpong keyed "$verbs_left $uncopied" "$verbs_right $uncopied" -m tagged -S 262144 -I 10
program keyed_memory memory write_forms read_forms atomic_forms
unset FI_ERD_KEY_FILE
# Keys of the endpoints alone: their domains have the memory registered with the device, and tell them so.
export $uncopied FI_PROVIDER=erd ERD_TEST_EP_KEY=0123456789abcdef0123456789abcdef
program keyed_registered registered
unset FI_ERD_ZERO_COPY_SIZE FI_PROVIDER ERD_TEST_EP_KEY
pingpong mixed "$verbs_left" "$RIGHT FI_ERD_PORT=udp" -m tagged -S 65536 -I 8

# netem KIND: what packets of both ends go through from here on; nothing without a kind.
netem() {
    for end in v0 v1; do
        tc qdisc del dev "$end" root 2> /dev/null
        [ $# = 0 ] || tc qdisc replace dev "$end" root netem limit 10000 "$@" || exit 1
    done
}

# Not the default there: a controller, as on a network.
nscc_left="$verbs_left FI_ERD_CC=nscc" nscc_right="$verbs_right FI_ERD_CC=nscc"
netem loss 1%
pingpong uncopied_loss1 "$nscc_left $uncopied" "$nscc_right $uncopied" -m tagged -S 262144 -I 10
pingpong loss1 "$nscc_left" "$nscc_right" -m tagged -S 65536 -I 20
key=FI_ERD_KEY_FILE=/tmp/job.key
pingpong keyed_loss1 "$nscc_left $key" "$nscc_right $key" -m tagged -S 65536 -I 20
netem delay 5ms 5ms
pingpong jitter "$nscc_left" "$nscc_right" -m tagged -S 65536 -I 20
netem delay 5ms 5ms loss 1%
pingpong both "$nscc_left" "$nscc_right" -m tagged -S 65536 -I 20
netem

# mpi NAME LIMIT PROGRAM ARGUMENTS: a Python program with MPICH, four ranks in turn on rxe0 and rxe1.
mpi() {
    name=$1 limit=$2
    shift 2
    env FI_PROVIDER=erd MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1 OMP_NUM_THREADS=1 \
        PYTHONDONTWRITEBYTECODE=1 FI_ERD_PORT=verbs FI_ERD_STATS="$OUT/$name.stats" timeout -k 5 "$limit" \
        "$MPICH/bin/mpiexec" -launcher fork -iface lo -n 4 sh -c \
        'FI_ERD_DEVICE=rxe$((PMI_RANK % 2)) exec "$@"' sh \
        "$MPICH/bin/python" "$@" > "$OUT/$name.output" 2>&1
    echo "$? 0" > "$OUT/$name.status"
    pkill -9 -f "$1" || :
}

# suite NAME: of mpi4py's tests those of objects, point to point and collective. Those of buffers repeat
# each call for some hundred types, which takes hours here.
suite() {
    mkdir -p "$OUT/$1.results"
    mpi "$1" 600 tests/mpi/mpi4py_suite.py "$SUITE" "$OUT/$1.results" \
        --only test_p2p_obj.TestP2PObjWorld. --only test_cco_obj.TestCCOObjWorld.
}

# stress NAME: many threads at once, whose domains are on one device or the other in turn. They keep both
# processors from each other for seconds, which is not to look like death.
stress() {
    env FI_ERD_PORT=verbs FI_ERD_PEER_TIMEOUT_MS=60000 FI_ERD_STATS="$OUT/$1.stats" ERD_STRESS_SECONDS=30 timeout -k 5 400 \
        "$LIBRARY_TESTS" "$STRESS" --exact --nocapture > "$OUT/$1.output" 2>&1
    echo "$? 0" > "$OUT/$1.status"
}

timeout -k 5 300 "$DEVICE_TESTS" --ignored --test-threads 1 verbs::device_tests \
    > "$OUT/queues.output" 2>&1
echo "$? 0" > "$OUT/queues.status"

program messages messages untagged_forms tagged_forms tags_and_order multi_recv wait_fd
program peers many_peers
program death peer_death killed restarted
mpi mpi 240 tests/mpi/exercise.py --short --most 1000

if [ -n "$SUITE" ]; then
    stress stress
    suite suite
    netem loss 1%
    stress stress_loss1
    suite suite_loss1
    mpi mpi_loss1 400 tests/mpi/exercise.py --short --most 1000
    netem delay 5ms 5ms
    suite suite_jitter
    mpi mpi_jitter 400 tests/mpi/exercise.py --short --most 1000
    netem delay 5ms 5ms loss 1%
    suite suite_both
    mpi mpi_both 400 tests/mpi/exercise.py --short --most 1000
    netem
fi

# The link goes down while packets flow, which takes the routes with it; then it is up again.
packets=/sys/class/net/v0/statistics/rx_packets
begun=$(cat "$packets")
(
    for tenth in $(seq 600); do
        [ $(($(cat "$packets") - begun)) -gt 1500 ] && break
        sleep 0.1
    done
    ip link set v0 down
    sleep 1.5
    ip link set v0 up
    ip route replace 10.7.0.2 dev v0 src 10.7.0.1 table 100
    ip route replace 10.7.0.1 dev v1 src 10.7.0.2 table 100
) &
pingpong down "$verbs_left" "$verbs_right" -m tagged -S 65536 -I 300
wait
# The first datagrams go by UDP, while the neighbours are asked for again.
pingpong again "$verbs_left" "$verbs_right" -m tagged -S 65536 -I 64
