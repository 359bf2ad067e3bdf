# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Compares reading and analysis by otelcol-gpu convert with sums.py (json and pandas), in turns on one file.

Usage: turns.py TRACE.json[.gz] MEGABYTES OTELCOL-GPU...

Repeats the trace, shifted, up to a size, and runs each program three times in turns: sums.py only for files up to 100 MB,
as json needs ten times the size. Prints the processor time in seconds and the peak resident memory in MB of each run, and
the ratio of the medians to that of sums.py (or of the first binary).
"""
import gzip
import json
import os
import statistics
import sys
import tempfile

FIELDS = ("correlation", "External id", "Python id", "Python parent id")


def write(path, trace, size):
    events = trace.pop("traceEvents")
    times = [e["ts"] for e in events if isinstance(e.get("ts"), (int, float)) and e["ph"] == "X"]
    ends = [e["ts"] + e["dur"] for e in events if e.get("dur") is not None]
    length, most = max(ends) - min(times) + 1000, 1 + max(
        v for e in events for v in (e.get("args", {}).get(f) for f in FIELDS) if isinstance(v, int))
    with open(path, "w") as out:
        out.write(json.dumps(trace)[:-1] + ', "traceEvents": [\n')
        n = 0
        while out.tell() < size:
            for e in events:
                e = dict(e, ts=e["ts"] + n * length) if isinstance(e.get("ts"), (int, float)) else e
                if "args" in e:
                    args = dict(e["args"])
                    for f in FIELDS:
                        if isinstance(args.get(f), int):
                            args[f] += n * most
                    e["args"] = args
                out.write(json.dumps(e) + ",\n")
            n += 1
        out.write('{"ph": "M", "name": "end", "pid": 0, "tid": 0, "ts": 0}]}\n')


def run(command):
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.execvp(command[0], command)
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{command} failed with {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main():
    source, megabytes, binaries = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    with (gzip.open if source.endswith(".gz") else open)(source) as f:
        trace = json.load(f)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rank0.pt.trace.json")
        write(path, trace, megabytes << 20)
        out = os.path.join(folder, "out")
        programs = {b: [b, "convert", "--detail", "steps", "--out", out, path] for b in binaries}
        if megabytes <= 100:
            sums = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sums.py")
            programs = {"pandas": [sys.executable, sums, path, "steps"], **programs}
        times = {name: [] for name in programs}
        for _ in range(3):
            for name, command in programs.items():
                seconds, memory = run(command)
                times[name].append(seconds)
                print(f"{name}: {seconds:.2f} s, {memory:.0f} MB", flush=True)
        first = statistics.median(next(iter(times.values())))
        for name, list_ in times.items():
            print(f"{name}: median {statistics.median(list_):.2f} s, {first / statistics.median(list_):.1f} times as fast as {next(iter(times))}")


main()
