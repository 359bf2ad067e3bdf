# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""A sampler for batches. Requires opentelemetry-sdk."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult


class LinksBased(Sampler):
    """Records a span when any request that it links to is sampled; otherwise the other sampler decides.

    With continuous batching one iteration serves many requests: it is recorded if one of them is. Use it at
    the root: ParentBased(LinksBased(TraceIdRatioBased(0.01)), local_parent_not_sampled=LinksBased(ALWAYS_OFF)).
    """

    def __init__(self, otherwise: Sampler) -> None:
        self._otherwise = otherwise

    def should_sample(self, parent_context: Optional[Any], trace_id: int, name: str, kind: Any = None,
                      attributes: Any = None, links: Optional[Sequence[Any]] = None,
                      trace_state: Any = None) -> SamplingResult:
        if any(link.context.trace_flags.sampled for link in links or ()):
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, trace_state)
        return self._otherwise.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return "LinksBased{%s}" % self._otherwise.get_description()
