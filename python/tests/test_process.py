# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that need a separate process: exit of the interpreter, and the capture library."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import textwrap

import pytest

TESTS = str(pathlib.Path(__file__).parent)
PREAMBLE = """
import sys, threading, time
sys.path.insert(0, %r)
import faketorch
device = faketorch.Device()
torch = sys.modules["torch"] = faketorch.make(device)
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(formatter=lambda s: "span " + s.name + chr(10))))
trace.set_tracer_provider(provider)
import otelgpu
from otelgpu import _device, _runtime
_device.TorchBackend.relax_capture_mode = lambda self: None
""" % TESTS


def run(program, env=None):
    return subprocess.run([sys.executable, "-c", PREAMBLE + textwrap.dedent(program)], capture_output=True, text=True,
                          timeout=60, env=dict(os.environ, **(env or {})))


def test_what_is_pending_at_the_end_is_delivered():
    out = run("""
        for i in range(5):
            with otelgpu.section("s%d" % i):
                torch.cuda.current_stream().run(0.05)
    """)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split("\n")[:5] == ["span s%d" % i for i in range(5)]


def test_the_end_waits_no_longer_than_its_deadline():
    out = run("""
        _runtime.EXIT_DEADLINE = 0.2
        with otelgpu.section("never"):
            torch.cuda.current_stream().run(3600)
    """)
    assert out.returncode == 0
    assert "1 sections are lost: the device or the exporter of spans had not finished 0.2 s after the end" in out.stderr
    assert "span" not in out.stdout


def test_kernels_get_the_current_span_where_the_capture_library_is_loaded(tmp_path):
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed: the stub of the capture library cannot be built")
    source = tmp_path / "shim.c"
    source.write_text("""
        #include <stdio.h>
        void otelgpu_push(const char *p) { printf("push %s\\n", p); fflush(stdout); }
        void otelgpu_push_batch(const char *p, const char *const *r, size_t n) {
            printf("batch %s", p ? p : "-");
            for (size_t i = 0; i < n; i++) printf(" %s", r[i]);
            printf("\\n");
            fflush(stdout);
        }
        void otelgpu_pop(void) { printf("pop\\n"); fflush(stdout); }
    """)
    lib = str(tmp_path / "libotelgpu_capture.so")
    subprocess.run([gcc, "-shared", "-fPIC", "-o", lib, str(source)], check=True)
    program = """
        import ctypes, os
        if os.environ.get("LOAD"):
            ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"])  # as the driver does when CUDA starts
        with trace.get_tracer("t").start_as_current_span("request") as r:
            sc = r.get_span_context()
            print("want 00-%032x-%016x-%02x" % (sc.trace_id, sc.span_id, sc.trace_flags), flush=True)
            with otelgpu.section("a"):
                pass
        with otelgpu.section("b", links=[(sc, 3)], batched=True):
            pass
    """
    out = run(program, {"CUDA_INJECTION64_PATH": lib, "LOAD": "1"})
    lines = out.stdout.split("\n")
    assert out.returncode == 0, out.stderr
    assert lines[1:5] == [lines[0].replace("want", "push"), "pop", lines[0].replace("want", "batch -"), "pop"]
    out = run(program, {"CUDA_INJECTION64_PATH": lib})
    assert "push" not in out.stdout and "span a" in out.stdout


def test_the_last_step_arrives_after_the_usual_shutdown():
    out = run("""
        for step, x in otelgpu.loop("train", range(8)):
            with step.phase("forward"):
                torch.cuda.current_stream().run(0.001)
        provider.shutdown()
    """)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split().count("train") == 8
    assert out.stdout.split().count("forward") == 8


def test_a_forced_flush_delivers_what_is_pending():
    out = run("""
        with otelgpu.section("a"):
            pass
        provider.force_flush()
        print("flushed", flush=True)
    """)
    assert out.stdout.split("\n")[:2] == ["span a", "flushed"], out.stderr


def test_a_missing_sdk_is_reported_once():
    program = "import otelgpu\nfor i in range(3):\n  with otelgpu.section('a'): pass\n"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0
    assert out.stderr.count("no OpenTelemetry SDK is configured") == 1


# Registered before otelgpu is imported, so that it runs after all exit handlers of otelgpu.
ALIVE = """
import atexit, threading
atexit.register(lambda: print("alive:", [t.name for t in threading.enumerate() if t.name.startswith("otelgpu")], flush=True))
"""


def run_alone(program, env=None):
    """Runs a program that prints its remaining threads after the exit handlers, and returns what it printed."""
    out = subprocess.run([sys.executable, "-c", ALIVE + PREAMBLE + textwrap.dedent(program)], capture_output=True, text=True,
                         timeout=60, env=dict(os.environ, **(env or {})))
    assert out.returncode == 0, out.stderr
    assert "alive: []" in out.stdout, out.stdout + out.stderr
    return out


@pytest.mark.parametrize("work", ["flush", "pending", "never"])
def test_the_reading_thread_ends_before_the_interpreter(work):
    out = run_alone("""
        _runtime.EXIT_DEADLINE = 0.2 if %r == "never" else 30
        with otelgpu.section("a"):
            torch.cuda.current_stream().run({"flush": 0, "pending": 0.05, "never": 3600}[%r])
        if %r == "flush":
            otelgpu.flush(30)
        thread = _runtime.runtime().thread
        atexit.register(lambda: print("stats:", otelgpu.stats()))
    """ % (work, work, work))
    assert ("span a" in out.stdout) == (work != "never")
    assert ("1 sections are lost" in out.stderr) == (work == "never")


def test_the_reading_thread_ends_although_it_waits_for_a_device_that_hangs():
    """No event of the device ever finishes, which includes events of anchors."""
    run_alone("""
        _runtime.EXIT_DEADLINE = 0.2
        with otelgpu.section("a"):
            pass
        torch.cuda.Event.query = lambda self: False
        torch.cuda.Event.synchronize = lambda self: time.sleep(3600)
        with otelgpu.section("b"):
            pass
        time.sleep(0.1)
    """)


def test_the_reading_thread_ends_after_a_call_that_has_released_the_gil():
    run_alone("""
        import ctypes
        sleep, entered, query = ctypes.CDLL(None).usleep, threading.Event(), torch.cuda.Event.query
        def slow(self):
            entered.set()
            sleep(300_000)
            return query(self)
        torch.cuda.Event.query = slow
        with otelgpu.section("a"):
            pass
        entered.wait()
        _runtime.EXIT_DEADLINE = 0
    """)


def test_a_thread_inside_a_call_of_torch_does_not_abort_the_process(tmp_path):
    """torch releases the GIL in C++ functions that must not throw. Python up to 3.13 ends a daemon thread that takes the
    GIL after the interpreter has ended by unwinding its stack, which aborts the process in such a function."""
    gxx, include = shutil.which("g++"), sysconfig.get_path("include")
    if gxx is None or not os.path.exists(os.path.join(include, "Python.h")):
        pytest.skip("g++ or Python's headers are not installed")
    source = tmp_path / "call.cc"
    source.write_text("""
        #include <Python.h>
        #include <unistd.h>
        struct Release { PyThreadState *s = PyEval_SaveThread(); ~Release() { PyEval_RestoreThread(s); } };
        extern "C" void call() { Release r; usleep(300000); }
        extern "C" void linger() { usleep(600000); }
    """)
    lib = str(tmp_path / "libcall.so")
    subprocess.run([gxx, "-shared", "-fPIC", "-I", include, "-o", lib, str(source)], check=True)
    run_alone("""
        import ctypes
        lib, entered = ctypes.PyDLL(%r), threading.Event()
        ctypes.pythonapi.Py_AtExit(lib.linger)  # so that the call returns while the interpreter ends
        def slow(self):
            entered.set()
            lib.call()
            return False
        torch.cuda.Event.query = slow
        with otelgpu.section("a"):
            pass
        entered.wait()
        _runtime.EXIT_DEADLINE = 0
    """ % lib)


def test_threads_of_the_program_outlive_its_main_thread():
    out = run_alone("""
        def work():
            threading.main_thread().join()
            time.sleep(0.1)
            for i in range(3):
                with otelgpu.section("late"):
                    torch.cuda.current_stream().run(0.001)
        threading.Thread(target=work).start()
        with otelgpu.section("early"):
            pass
    """)
    assert out.stdout.split().count("late") == 3 and out.stdout.split().count("early") == 1


def test_a_worker_process_delivers_what_is_pending_at_its_end():
    out = run_alone("""
        import multiprocessing
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        def work():
            provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda s: s.name + chr(10))))
            with otelgpu.section("worker"):
                torch.cuda.current_stream().run(0.05)
        p = multiprocessing.get_context("fork").Process(target=work)
        with otelgpu.section("main"):
            pass
        p.start()
        p.join()
        print("worker", p.exitcode, flush=True)
    """)
    assert out.stdout.startswith("worker\nworker 0\n")


THREAD = """
import os, sys, threading, otelgpu
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
class Count(SpanExporter):
    n = 0
    def export(self, batch):
        Count.n += len(batch)
        return SpanExportResult.SUCCESS
    def shutdown(self):
        os.write(1, b"%d" % Count.n)
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(Count()))
trace.set_tracer_provider(provider)
FIRST
def work():
    threading.main_thread().join()
    for step in otelgpu.loop("train", total_steps=8):
        pass
threading.Thread(target=work).start()
"""


@pytest.mark.parametrize("first, spans", [("", b"8"), ("with otelgpu.section('a'): pass", b"9")])
def test_the_steps_of_a_thread_that_outlives_the_main_thread_arrive(first, spans):
    """From 3.12 on, Python starts no thread after the main thread has ended."""
    out = subprocess.run([sys.executable, "-c", THREAD.replace("FIRST", first)], capture_output=True, timeout=60)
    assert (out.returncode, out.stdout, out.stderr) == (0, spans, b"")


def test_the_version_is_printed():
    import otelgpu
    out = subprocess.run([sys.executable, "-m", "otelgpu", "--version"], capture_output=True, text=True, timeout=60)
    assert (out.returncode, out.stdout) == (0, f"otelgpu {otelgpu.__version__}\n")
