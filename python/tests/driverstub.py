# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""The stub of libcuda that the Go library is tested with: a GPU with known true times, as strict as documented."""

import ctypes
import pathlib
import shutil
import subprocess

import pytest

SOURCES = pathlib.Path(__file__).parents[2] / "gpuspan" / "internal" / "ctest" / "csrc"


class Program:
    """A program that uses CUDA through the stub, as a framework would."""

    def __init__(self, path):
        self.path = path
        self.lib = lib = ctypes.CDLL(str(path))
        lib.stub_set.argtypes = [ctypes.c_char_p, ctypes.c_double]
        lib.stub_work.argtypes = [ctypes.c_void_p, ctypes.c_double]
        lib.stub_count.argtypes, lib.stub_count.restype = [ctypes.c_char_p], ctypes.c_int64
        lib.stub_now.restype = ctypes.c_int64
        lib.stub_log_start.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        lib.stub_log_at.argtypes, lib.stub_log_at.restype = [ctypes.c_void_p, ctypes.c_int64], ctypes.c_int64
        lib.stub_fail.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        lib.stub_stream_fail.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        lib.cuStreamBeginCapture_v2.argtypes = [ctypes.c_void_p, ctypes.c_int]
        lib.cuStreamEndCapture.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        lib.cuStreamDestroy_v2.argtypes = lib.cuCtxPushCurrent_v2.argtypes = [ctypes.c_void_p]
        lib.cuDevicePrimaryCtxGetState.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]

    def set(self, **settings):
        for name, value in settings.items():
            self.lib.stub_set(name.encode(), value)

    def start(self, device=0):
        """Creates the device's context, and makes it current for this thread."""
        context = ctypes.c_void_p()
        assert self.lib.cuInit(0) == 0
        assert self.lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
        assert self.lib.cuCtxPushCurrent_v2(context) == 0
        return context.value

    def leave(self):
        """Makes no context current for this thread."""
        assert self.lib.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0

    def stream(self, blocking=False):
        out = ctypes.c_void_p()
        assert self.lib.cuStreamCreate(ctypes.byref(out), 0 if blocking else 1) == 0
        self.lib.stub_log_start(out, 1024)
        return out.value

    def work(self, stream, seconds):
        self.lib.stub_work(stream, seconds * 1e9)

    def ahead(self, stream):
        """Keeps the device busy while a test queues work, so that the work's times are exact even if the test loses its
        CPU in between."""
        self.work(stream, 0.3)

    def at(self, stream, i):
        """Returns the true host time of the i-th event on the stream, in ns of the monotonic clock."""
        return self.lib.stub_log_at(stream, i)

    def count(self, what):
        return self.lib.stub_count(what.encode())


def build(folder, *flags, source="cuda.c"):
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed: the stub cannot be built")
    if not SOURCES.is_dir():
        pytest.skip("not in a checkout of the repository: the stub is not here")
    out = folder / ("libcuda.so.1" if source == "cuda.c" else "tool.so")
    subprocess.run([gcc, "-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", *flags, "-o", str(out),
                    str(SOURCES / source), "-lm", "-lpthread"], check=True)
    return out
