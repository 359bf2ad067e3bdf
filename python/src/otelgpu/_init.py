# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""One line that sets up the OpenTelemetry SDK, for programs that have not."""

from __future__ import annotations

import os
import uuid
from typing import Any, Dict, Mapping, Optional

from opentelemetry import trace

from ._job import job
from ._runtime import log, runtime

ENDPOINT = "http://127.0.0.1:4318"


def init(service: Optional[str] = None, *, endpoint: Optional[str] = None, attributes: Optional[Mapping[str, Any]] = None,
         exporter: Any = None) -> None:
    """Sets up the OpenTelemetry SDK to send spans over OTLP/HTTP. Requires `pip install 'otelgpu[otlp]'`.

        otelgpu.init("train")

    service: service.name; default OTEL_SERVICE_NAME. endpoint: of the Collector; default OTEL_EXPORTER_OTLP_ENDPOINT or
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, otherwise http://127.0.0.1:4318. attributes: further ones of the resource, which
    also has job() and OTEL_RESOURCE_ATTRIBUTES. exporter: a SpanExporter instead of OTLP. The SDK's environment
    variables set the sampler, headers, and limits.

    Nothing is done if the program has set a TracerProvider, and with OTELGPU_ENABLED=false or OTEL_SDK_DISABLED=true. A
    missing package is logged, and the program goes on without spans.
    """
    rt = runtime()
    if not rt.settings.allowed or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    try:
        current = trace.get_tracer_provider()
        if not isinstance(current, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
            log.debug("otelgpu: init() does nothing, because the program has set a TracerProvider")
            return
        _set_up(service, endpoint, attributes or {}, exporter)
    except ImportError as e:
        rt.trouble("init()", f"{e.name or e} is not installed (pip install 'otelgpu[otlp]')")
    except Exception as e:
        rt.trouble("init()", repr(e))


def _set_up(service: Optional[str], endpoint: Optional[str], attributes: Mapping[str, Any], exporter: Any) -> None:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from .ids import UniqueIds

    if exporter is None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        target = endpoint
        if target is None and not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
            target = ENDPOINT
        if os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") and endpoint is None:
            target = None
        if target is not None:
            target = target.rstrip("/")
            target = target if target.endswith("/v1/traces") else target + "/v1/traces"
        exporter = OTLPSpanExporter(endpoint=target)
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
        if protocol.strip() == "grpc":
            runtime().trouble("init()", "the environment asks for OTLP over gRPC, but spans are sent over HTTP (use the port of "
                              "OTLP/HTTP, usually 4318, or pass exporter=)")
    detected: Dict[str, Any] = dict(Resource.create({}).attributes)  # of the environment
    own: Dict[str, Any] = {"service.instance.id": str(uuid.uuid4()), **job(), **attributes}
    if service is not None:
        own["service.name"] = service
    stated = _stated()
    # Variables of the environment win over what the package found, and the program over the environment.
    for key in list(own):
        if key in stated and key not in attributes and not (key == "service.name" and service is not None):
            own[key] = detected[key]
    provider = TracerProvider(resource=Resource.create(own), id_generator=UniqueIds())
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _stated() -> Dict[str, str]:
    """Returns the resource attributes that the environment states."""
    out: Dict[str, str] = {}
    for item in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        key, equals, value = item.partition("=")
        if equals:
            out[key.strip()] = value.strip()
    return out
