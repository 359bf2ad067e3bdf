# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Measures the overhead of the PyTorch profiler, for comparison with the table in docs/hardware.md.

Runs kernels of 5 us to 1 ms in a plain loop, under torch.profiler, and between pairs of torch.cuda.Event, and prints
one row of Markdown for each length: queued (the device is the limit) and one at a time (the host is). Needs PyTorch
and an NVIDIA GPU.

    python3 benchmarks/torch_overhead.py
"""

import contextlib
import time

import torch
from torch.profiler import ProfilerActivity, profile

LENGTHS_US = (5, 10, 20, 50, 100, 200, 500, 1000)
BUDGET_S = 1.5  # of kernel time for each measurement
REPEATS = 3


def cycles_per_us():
    """Calibrates torch.cuda._sleep, which counts clock cycles."""
    cycles = 100_000_000
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(cycles)  # clocks go up
    start.record()
    torch.cuda._sleep(cycles)
    end.record()
    torch.cuda.synchronize()
    return cycles / (start.elapsed_time(end) * 1e3)


def loop(n, cycles, one_at_a_time, events):
    """Microseconds per kernel, the best of a few runs."""
    best = float("inf")
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for i in range(n):
            if events:
                events[2 * i].record()
            torch.cuda._sleep(cycles)
            if events:
                events[2 * i + 1].record()
            if one_at_a_time:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / n * 1e6)
    return best


def profiler():
    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])


def main():
    rate = cycles_per_us()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {rate:.0f} cycles per us\n")
    print("| kernel | mode | bare | torch.profiler | torch.cuda.Event |")
    print("| --- | --- | --- | --- | --- |")
    for us in LENGTHS_US:
        n = min(int(BUDGET_S * 1e6 / us), 2000)
        cycles = int(us * rate)
        pool = [torch.cuda.Event(enable_timing=True) for _ in range(2 * n)]
        for mode in ("queued", "one at a time"):
            row = []
            for context, events in ((contextlib.nullcontext, None), (profiler, None), (contextlib.nullcontext, pool)):
                with context():
                    row.append(loop(n, cycles, mode != "queued", events))
            bare = row[0]
            cells = " | ".join(f"{v:.2f} us ({v - bare:+.2f})" for v in row[1:])
            print(f"| {us} us | {mode} | {bare:.2f} us | {cells} |")


if __name__ == "__main__":
    main()
