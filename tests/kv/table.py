"""Makes tables in Markdown of what bench.sh left: python3 table.py DIRECTORY...

Each directory has one run of everything. A cell is the median of the runs, and an empty one a carrier that did not get so far.
"""

import json
import pathlib
import statistics
import sys

ENGINES = {
    "Mooncake": {
        "mooncake-erd": "erd", "mooncake-own": "its own TCP", "mooncake-memory": "erd, shared memory",
    },
    "NIXL": {
        "nixl-erd": "erd", "nixl-tcp": "libfabric `tcp`", "nixl-ucx": "UCX over TCP", "nixl-memory": "erd, shared memory",
    },
}
SIZES = {4096: "4 KiB", 65536: "64 KiB", 1 << 20: "1 MiB", 1 << 24: "16 MiB", 1 << 26: "64 MiB"}


def points(directories):
    """The lines of all runs, by file, operation, number outstanding and size."""
    found = {}
    for directory in directories:
        for path in pathlib.Path(directory).glob("*.json"):
            for line in path.read_text().splitlines():
                if line.startswith("{"):
                    point = json.loads(line)
                    key = path.stem, point["op"], point["outstanding"], point["size"]
                    found.setdefault(key, []).append(point)
    return found


def cell(runs, what):
    if not runs:
        return ""
    value = statistics.median(run[what] for run in runs)
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(found, carriers):
    present = [name for name in carriers if any(key[0] == name for key in found)]
    print("| | " + " | ".join(carriers[name] for name in present) + " |")
    print("|" + " --- |" * (len(present) + 1))
    for outstanding, what, unit in ((1, "latency_us", "us"), (64, "gb_per_s", "GB/s")):
        for op in ("WRITE", "READ"):
            for size, text in SIZES.items():
                cells = [cell(found.get((name, op, outstanding, size)), what) for name in present]
                if any(cells):
                    print(f"| {text} {op.lower()}, {outstanding} outstanding, {unit} | " + " | ".join(cells) + " |")


def main():
    found = points(sys.argv[1:])
    for engine, carriers in ENGINES.items():
        print(f"\n**{engine}**\n")
        table(found, carriers)


if __name__ == "__main__":
    main()
