# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry spans of GPU work, through the SDK that the program already uses.

    import otelgpu

    with otelgpu.section("prefill", items=tokens, item_type="token", flops=f, precision="bf16"):
        model(batch)

    for step, batch in otelgpu.loop("train", loader, item_type="image"):
        with step.phase("forward"):
            loss = model(batch)
        step.items = len(batch)

A section records two torch.cuda events and returns without waiting. A background thread reads the events later and
makes the span, whose start and end are the GPU's times on the wall clock with a stated bound (gpu.timing.error).
Without torch, or without a GPU, sections are timed by the host's clock and state it (gpu.timing.source = host, no
gpu.duration).

No function raises into the program; stats() counts losses by reason. OTELGPU_ENABLED=false disables otelgpu.
"""

from ._capture import pop, push
from ._collectives import watch_collectives
from ._job import job
from ._loop import Schedule, Step, loop
from ._profiler import trace_handler
from ._runtime import VERSION, flush, stats
from ._section import Section, section

__version__ = VERSION

__all__ = ["Schedule", "Section", "Step", "flush", "job", "loop", "pop", "push", "section", "stats", "trace_handler", "watch_collectives",
           "__version__"]
