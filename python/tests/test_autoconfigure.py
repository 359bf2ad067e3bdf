# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""The SDK configured from the environment through the entry points of the installed package."""

import http.server
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import threading
import pathlib

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanContext, TraceFlags, Link

from otelgpu.autoconfigure import links_sampler

PROGRAM = """
import otelgpu
for step in otelgpu.loop("train", total_steps=2):
    pass
"""


def installed():
    points = importlib.metadata.entry_points(group="opentelemetry_resource_detector")
    return any(p.name == "otelgpu" for p in points)


@pytest.mark.skipif(not installed(), reason="the package is not installed, so it has no entry points")
def test_the_sdk_finds_rank_and_sampler_by_their_names():
    program = """
import json
from opentelemetry.sdk._configuration import _import_config_components
from opentelemetry.sdk.resources import Resource
(_, sampler), = _import_config_components(["otelgpu_links"], "opentelemetry_traces_sampler")
print(json.dumps([dict(Resource.create().attributes), sampler("0.25").get_description()]))
"""
    env = dict(os.environ, OTEL_EXPERIMENTAL_RESOURCE_DETECTORS="otelgpu", RANK="3", WORLD_SIZE="8", LOCAL_RANK="1",
               SLURM_JOB_ID="4711")
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=env)
    assert out.returncode == 0, out.stderr
    resource, sampler = json.loads(out.stdout)
    assert (resource["gpu.job.id"], resource["gpu.job.rank"], resource["gpu.job.world_size"]) == ("4711", 3, 8)
    assert "LinksBased{TraceIdRatioBased{0.25}}" in sampler


@pytest.mark.skipif(not installed(), reason="the package is not installed, so it has no entry points")
def test_a_program_without_setup_sends_steps_under_auto_instrumentation():
    instrument = pathlib.Path(sys.executable).with_name("opentelemetry-instrument")
    if not instrument.exists():
        pytest.skip("opentelemetry-instrument is not installed: pip install opentelemetry-distro")
    env = dict(os.environ, OTEL_EXPERIMENTAL_RESOURCE_DETECTORS="otelgpu", RANK="3", WORLD_SIZE="8",
               OTEL_TRACES_EXPORTER="console", OTEL_METRICS_EXPORTER="none", OTEL_LOGS_EXPORTER="none",
               OTEL_TRACES_SAMPLER="otelgpu_links")
    out = subprocess.run([str(instrument), sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, env=env)
    assert out.returncode == 0, out.stderr
    assert out.stdout.count('"gpu.step.index"') == 2, out.stdout + out.stderr
    assert '"gpu.job.rank": 3' in out.stdout
    assert "no OpenTelemetry SDK" not in out.stderr


@pytest.mark.skipif(not installed(), reason="the package is not installed, so it has no entry points")
def test_the_commands_of_the_page_send_spans_over_http():
    page = pathlib.Path(__file__).parents[2] / "docs" / "pytorch.md"
    instrument = pathlib.Path(sys.executable).with_name("opentelemetry-instrument")
    if not instrument.exists() or not page.exists():
        pytest.skip("opentelemetry-instrument or docs/pytorch.md is not here")
    block = page.read_text(encoding="utf-8").split("### Auto-instrumentation")[1].split("```")[1]
    variables = dict(re.findall(r"\b(OTEL_\w+)=(\S+)", block))
    assert variables["OTEL_SERVICE_NAME"] == "train"
    paths = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{server.server_port}", **variables)
        out = subprocess.run([str(instrument), sys.executable, "-c", PROGRAM],
                             capture_output=True, text=True, timeout=300, env=env)
        server.shutdown()
    assert out.returncode == 0, out.stderr
    assert "Traceback" not in out.stderr
    assert "/v1/traces" in paths, out.stderr


def test_the_sampler_records_batches_of_sampled_requests():
    tracer = TracerProvider(sampler=links_sampler("0")).get_tracer("t")
    assert not tracer.start_span("alone").is_recording()
    for flags, want in ((TraceFlags(1), True), (TraceFlags(0), False)):
        link = Link(SpanContext(1, 2, False, flags))
        assert tracer.start_span("batch", links=[link]).is_recording() == want


@pytest.mark.parametrize("argument", ["2", "-1", "nan", "half"])
def test_an_unusable_ratio_is_logged_and_everything_recorded(argument, caplog):
    assert TracerProvider(sampler=links_sampler(argument)).get_tracer("t").start_span("x").is_recording()
    assert "OTEL_TRACES_SAMPLER_ARG must be between 0 and 1" in caplog.text


def test_no_ratio_records_everything():
    for argument in (None, ""):
        assert TracerProvider(sampler=links_sampler(argument)).get_tracer("t").start_span("x").is_recording()
