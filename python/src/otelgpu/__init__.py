# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry spans of GPU work, through the SDK that the program already uses.

    import otelgpu

    with otelgpu.section("prefill", items=tokens, item_type="token", flops=f, precision="bf16"):
        model(batch)

    for step, batch in otelgpu.loop("train", loader, item_type="image"):
        with step.phase("forward"):
            loss = model(batch)
        step.items = len(batch[0])

A section records two events of the device (through torch, or the CUDA driver that CuPy, Numba, JAX or others have
loaded) and returns without waiting. A background thread reads the events later and makes the span, whose start and end
are the GPU's times on the wall clock with a stated bound (gpu.timing.error). Without a GPU, sections are timed by the
host's clock and state it (gpu.timing.source = host, no gpu.duration).

No function raises into the program; stats() counts losses by reason. OTELGPU_ENABLED=false disables otelgpu.
"""

from . import flops
from ._capture import pop, push
from ._collectives import watch_collectives
from ._configure import configure
from ._init import init
from ._job import job
from ._loop import Step, loop
from ._profiler import trace_handler
from ._report import Report
from ._runtime import VERSION, flush, report, reset_report, stats
from ._section import Section, section
from ._settings import Schedule
from ._stepcsv import step_csv

__version__ = VERSION

__all__ = ["Report", "Schedule", "Section", "Step", "configure", "flops", "flush", "init", "job", "loop", "pop", "push",
           "report", "reset_report", "section", "stats", "step_csv", "trace_handler", "watch_collectives", "__version__"]
