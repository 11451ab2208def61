# For `cargo xtask vm --limit 1800 --script tests/vm/bench.sh`, after `cargo build --release`: erd over verbs
# beside libfabric's verbs;ofi_rxd (UD, as erd) and verbs;ofi_rxm (RC, whose reliability is the
# kernel's), in turn, with fi_pingpong. Times are those of half a round trip in microseconds. The
# processor is emulated: only ratios count, and only on a host that has nothing else to do.
# Both devices are in one host, whose memory would carry everything.
export FI_ERD_LOCAL=udp
export FI_PROVIDER_PATH="$PROVIDERS" FI_LOG_LEVEL=error FI_VERBS_GID_IDX=1
# ofi_rxm makes a queue for so many peers, and Soft-RoCE refuses one for 256.
export FI_UNIVERSE_SIZE=8
ROUNDS=${ROUNDS:-5}

# one PROVIDER SIZE ROUNDS: a line with provider, size and time.
one() {
    left=rxe0 right=rxe1
    [ "$1" = "verbs;ofi_rxd" ] && left=rxe0-dgram right=rxe1-dgram
    env FI_ERD_PORT=verbs FI_ERD_DEVICE=rxe0 timeout -k 3 60 \
        fi_pingpong -e rdm -p "$1" -d $left -S "$2" -I "$3" > "$OUT/server" 2>&1 &
    sleep 1
    echo "$1 $2 $(env FI_ERD_PORT=verbs FI_ERD_DEVICE=rxe1 timeout -k 3 50 \
        fi_pingpong -e rdm -p "$1" -d $right -S "$2" -I "$3" 10.7.0.1 2>&1 |
        awk 'END {print $(NF - 1)}')"
    kill $! 2> /dev/null
    wait
}

for round in $(seq "$ROUNDS"); do
    for point in 64:1500 4096:1000 1048576:30; do
        for provider in erd "verbs;ofi_rxd" "verbs;ofi_rxm"; do
            one "$provider" "${point%:*}" "${point#*:}"
        done
    done
done > "$OUT/points"

sort -k1,1 -k2,2n -k3,3n "$OUT/points" | awk -v rounds="$ROUNDS" '
    { key = $1 " " $2; count[key]++; time[key, count[key]] = $3; sizes[$2] }
    function median(key) { return time[key, int((count[key] + 1) / 2)] }
    END {
        for (size in sizes) {
            erd = median("erd " size)
            for (other in count) {
                if (split(other, part, " ") == 2 && part[2] == size)
                    printf "%8d B  %-14s median %10.1f us  least %10.1f us  erd is %.2f times as fast\n", \
                        size, part[1], median(other), time[other, 1], median(other) / erd
            }
        }
    }' | sort -k1,1n -k3,3
