# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""What BenchmarkAgainstPython compares with: the sums of a trace by Python's json and plain loops.

Usage: sums.py FILE.json. Prints the sums and "seconds N": processor time of reading and summing, without starting the interpreter.
"""
import json
import sys
import time
from collections import defaultdict

DEVICE = {"kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset"}


def sums(path):
    with open(path, "rb") as f:
        doc = json.load(f)
    out = defaultdict(float)
    rows = defaultdict(list)
    for e in doc["traceEvents"] if isinstance(doc, dict) else doc:
        if e.get("ph") != "X":
            continue
        cat = e.get("cat", "").lower()
        if cat in DEVICE:
            args = e.get("args", {})
            rows[args.get("device", e["pid"])].append((e["ts"], e["dur"]))
            if cat == "kernel":
                out["kernels"] += 1
                out["kernel_us"] += e["dur"]
            elif cat in ("gpu_memcpy", "memcpy"):
                direction = e["name"].split()[1]
                out["bytes_" + direction] += args["bytes"]
                out["copy_us_" + direction] += e["dur"]
        elif e["name"].startswith("ProfilerStep#") and cat in ("user_annotation", "operator"):
            out["steps"] += 1
            out["step_us"] += e["dur"]
    for device, list_ in rows.items():
        list_.sort()
        busy, end = 0, float("-inf")
        for ts, dur in list_:
            busy += max(0, ts + dur - max(ts, end))
            end = max(end, ts + dur)
        out["busy_us_%s" % device] = busy
    return dict(out)


begin = time.process_time()
result = sums(sys.argv[1])
took = time.process_time() - begin
print(result)
print("seconds", took)
