# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of the guide as pasted."""

import http.server
import os
import pathlib
import re
import subprocess
import sys
import threading

import pytest

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "pytorch.md"
MODEL = """
class Loss:
    def backward(self): pass
model, loader, parameters, tokens = (lambda batch: Loss()), [([1, 2], [0, 1])] * 3, 10, 5
"""


def test_the_guide_works_when_pasted():
    if not GUIDE.exists():
        pytest.skip("the guide is not in the source distribution")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    first, second = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)[:2]
    bodies = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        env = dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:%d" % server.server_port)
        out = subprocess.run([sys.executable, "-c", first + MODEL + second], capture_output=True, text=True, timeout=60,
                             env=env)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert out.returncode == 0, out.stderr
    sent = b"".join(bodies)
    assert sent.count(b"gpu.step.index") == 3
    assert sent.count(b"gpu.step.phase.duration.backward") == 3
