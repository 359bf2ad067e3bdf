# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Entry points for programs whose SDK is configured from the environment, as `opentelemetry-instrument` does.

    OTEL_EXPERIMENTAL_RESOURCE_DETECTORS=otelgpu     # job and rank, as otelgpu.job()
    OTEL_TRACES_SAMPLER=otelgpu_links                # otelgpu.sampling.LinksBased, for batches
    OTEL_TRACES_SAMPLER_ARG=0.01                     # sampling ratio of other traces
"""

from __future__ import annotations

import math
from typing import Optional

from opentelemetry.sdk.resources import Resource, ResourceDetector
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased

from ._job import job
from ._runtime import runtime
from .sampling import LinksBased

__all__ = ["JobDetector", "links_sampler"]


class JobDetector(ResourceDetector):
    """Detects the job, rank and world size of the process."""

    def detect(self) -> Resource:
        return Resource(job())


def links_sampler(argument: Optional[str] = None) -> Sampler:
    """Returns a sampler that records a batch if one of its requests is sampled, and other traces with the given
    ratio."""
    try:
        ratio = float(argument or 1)
        if not 0 <= ratio <= 1 or math.isnan(ratio):
            raise ValueError
    except ValueError:
        runtime().trouble("the sampler's argument", f"OTEL_TRACES_SAMPLER_ARG must be between 0 and 1, found {argument!r}")
        ratio = 1.0
    return ParentBased(LinksBased(TraceIdRatioBased(ratio)), local_parent_not_sampled=LinksBased(ALWAYS_OFF))
