# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""A training loop: steps with phases, and an occasional profiler window.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 python train.py [--steps 50] [--traces /var/lib/otelgpu/traces]
"""

import argparse

import torch
from torch.profiler import profile, schedule

import otelgpu
from setup import start


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--steps", type=int, default=50)
    args.add_argument("--traces", help="folder that the Collector's kineto receiver follows")
    options = args.parse_args()

    tracer = start("train")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    parameters = sum(p.numel() for p in model.parameters())
    batches = ((torch.randn(256, 512), torch.randint(10, (256,))) for _ in range(options.steps))

    windows = None
    if options.traces:
        windows = profile(schedule=schedule(wait=10, warmup=2, active=3, repeat=2), record_shapes=True,
                          on_trace_ready=otelgpu.trace_handler(options.traces))
        windows.start()
    with tracer.start_as_current_span("job"):
        for step, (x, y) in otelgpu.loop("train", batches, item_type="sample"):
            with otelgpu.section("h2d.batch", type="copy", copy="host_to_device", host_memory="pageable",
                                 size=x.nbytes + y.nbytes):
                x, y = x.to(device), y.to(device)
            with step.phase("forward"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            with step.phase("backward"):
                loss.backward()
            with step.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            step.items, step.model_flops, step.precision = len(x), 6.0 * parameters * len(x), "fp32"
            if windows is not None:
                windows.step()
    if windows is not None:
        windows.stop()
    print("counts:", otelgpu.flush() and otelgpu.stats())


if __name__ == "__main__":
    main()
