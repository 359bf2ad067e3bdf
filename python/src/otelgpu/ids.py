# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""A generator of unique IDs for the spans of the whole program. Requires opentelemetry-sdk.

    TracerProvider(id_generator=otelgpu.ids.UniqueIds())

or OTEL_PYTHON_ID_GENERATOR=otelgpu for opentelemetry-instrument."""

from __future__ import annotations

from opentelemetry.sdk.trace.id_generator import IdGenerator

from ._ids import Ids

__all__ = ["UniqueIds"]


class UniqueIds(Ids, IdGenerator):
    """Draws IDs from the operating system. The SDK's default draws them from Python's `random`, so that ranks that seed
    it alike, as trainers do, share the IDs of all their spans."""
