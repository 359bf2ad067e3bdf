# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what otelgpu.watch_collectives() adds to a training step, with torch on a CPU and gloo.

    python benchmarks/collectives.py [steps [all-reduces]]

Two DDP models, of which one is watched, alternate in one process that is a group of one rank, so that nothing waits.
Each step has two all-reduces, or as many as given. The steps are short, so that the difference can be measured; the
last line relates it to 50 ms.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from torch.nn.parallel import DistributedDataParallel

import otelgpu

REDUCES = int(sys.argv[2]) if len(sys.argv) > 2 else 2


class Nowhere(SpanExporter):
    def export(self, spans):
        return SpanExportResult.SUCCESS


def model():
    layers = [torch.nn.Linear(256, 256, bias=False) for _ in range(REDUCES)]
    return DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.1)


def steps(name, x, n, times):
    for step, _ in otelgpu.loop(name, range(n)):
        begin, cpu = time.perf_counter_ns(), time.process_time_ns()
        with step.phase("forward"):
            loss = x(DATA).sum()
        with step.phase("backward"):
            loss.backward()
        times[0].append(time.perf_counter_ns() - begin)
        times[1].append(time.process_time_ns() - cpu)


if __name__ == "__main__":
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere(), max_queue_size=1 << 16))
    trace.set_tracer_provider(provider)
    DATA = torch.ones(4, 256)
    plain, watched = model(), otelgpu.watch_collectives(model())
    times = {"plain": ([], []), "watched": ([], [])}
    for turn in range(n // 50):
        steps("plain", plain, 50, times["plain"])
        steps("watched", watched, 50, times["watched"])
    median = {k: [statistics.median(x) / 1000 for x in v] for k, v in times.items()}
    for k, (wall, cpu) in median.items():
        print("%-8s %7.0f us a step, %7.0f us of CPU" % (k, wall, cpu))
    extra = median["watched"][0] - median["plain"][0]
    print("watching adds %.0f us to a step of %d all-reduces: %.2f %% of 50 ms" % (extra, REDUCES, extra / 500))
    otelgpu.flush(10)
    dist.destroy_process_group()
