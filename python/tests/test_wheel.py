# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Installs the output of `make wheel` as a user would: OTELGPU_WHEELS=dist/python. Requires a package index."""

import ctypes
import os
import pathlib
import platform
import re
import struct
import subprocess
import sys
import tarfile
import zipfile

import pytest

WHEELS = pathlib.Path(os.environ.get("OTELGPU_WHEELS", "")).resolve()
pytestmark = pytest.mark.skipif(not os.environ.get("OTELGPU_WHEELS"), reason="no built wheels: make wheel, set OTELGPU_WHEELS")
PROGRAM = """
import otelgpu
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)
for step in otelgpu.loop("train", total_steps=2):
    with step.phase("forward"):
        pass
"""


def versions(library):
    """Returns the glibc symbol versions that an ELF file needs, read from its string tables."""
    return {tuple(map(int, v.split(b"."))) for v in re.findall(rb"GLIBC_([0-9.]+)\0", library)}


@pytest.mark.parametrize("arch,machine", [("x86_64", 62), ("aarch64", 183)])
def test_the_library_of_a_wheel_needs_no_newer_glibc_than_its_name_says(arch, machine):
    wheel, = WHEELS.glob(f"otelgpu-*-py3-none-manylinux_2_17_{arch}.manylinux2014_{arch}.whl")
    with zipfile.ZipFile(wheel) as z:
        library = z.read("otelgpu/libotelgpu_capture.so")
    assert struct.unpack_from("<H", library, 18)[0] == machine
    needed = versions(library)
    assert needed and max(needed) <= (2, 17)
    for name in (b"InitializeInjection", b"otelgpu_push", b"otelgpu_push_batch", b"otelgpu_pop"):
        assert b"\0" + name + b"\0" in library


def test_the_wheel_for_any_platform_has_no_library():
    wheel, = WHEELS.glob("otelgpu-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as z:
        assert not [name for name in z.namelist() if name.endswith(".so")]
        assert "otelgpu/py.typed" in z.namelist()


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    """A fresh environment in which pip has installed one of the wheels."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    version = next(WHEELS.glob("otelgpu-*.tar.gz")).name[len("otelgpu-"):-len(".tar.gz")]
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--find-links", str(WHEELS),
                    f"otelgpu[test]=={version}"], check=True)
    return python


def clean():
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CUDA_INJECTION64_PATH")}


def test_an_installed_wheel_makes_spans(venv):
    out = subprocess.run([venv, "-c", PROGRAM], capture_output=True, text=True, timeout=60, env=clean())
    assert out.returncode == 0, out.stderr
    assert out.stdout.count('"gpu.step.index"') == 2


def test_an_installed_wheel_runs_commands_with_its_library(venv, tmp_path):
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("no wheel with a library for this platform")
    env = {**clean(), "OTELGPU_CAPTURE_DIR": str(tmp_path)}
    script = str(pathlib.Path(venv).parent / "otelgpu")
    out = subprocess.run([script, "run", venv, "-c", "import os; print(os.environ['CUDA_INJECTION64_PATH'])"],
                         capture_output=True, text=True, timeout=60, env=env)
    assert out.returncode == 0, out.stderr
    library = ctypes.CDLL(out.stdout.strip())
    library.otelgpu_push(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    library.otelgpu_pop()


def test_the_tests_of_the_sdist_pass(venv, tmp_path):
    sdist, = WHEELS.glob("otelgpu-*.tar.gz")
    with tarfile.open(sdist) as t:
        t.extractall(tmp_path)
    folder, = tmp_path.iterdir()
    assert (folder / "LICENSE").exists()
    env = {k: v for k, v in clean().items() if k != "OTELGPU_WHEELS"}
    out = subprocess.run([venv, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=folder, capture_output=True, text=True,
                         timeout=600, env=env)
    assert out.returncode == 0, out.stdout[-5000:]
