# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""python -m otelgpu."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import otelgpu

PACKAGE = pathlib.Path(otelgpu.__file__).parent
PRINT = [sys.executable, "-c", "import os; print(os.environ.get('CUDA_INJECTION64_PATH'))"]


@pytest.fixture
def installed(tmp_path):
    """A copy of the package with a capture library, as in the wheel."""
    if os.name != "posix":
        pytest.skip("the capture library is for Linux")
    shutil.copytree(PACKAGE, tmp_path / "site" / "otelgpu", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "site" / "otelgpu" / "libotelgpu_capture.so").write_bytes(b"")
    return tmp_path


def otelgpu_command(at, *args, **env):
    env = {**{k: v for k, v in os.environ.items() if k != "CUDA_INJECTION64_PATH"}, "PYTHONPATH": str(at / "site"),
           "OTELGPU_CAPTURE_DIR": str(at / "rings"), **env}
    return subprocess.run([sys.executable, "-m", "otelgpu", *args], capture_output=True, text=True, timeout=60, env=env)


def test_run_starts_the_command_with_the_library(installed):
    library = str(installed / "site" / "otelgpu" / "libotelgpu_capture.so")
    for args in (["run"], ["run", "--"]):
        out = otelgpu_command(installed, *args, *PRINT)
        assert (out.returncode, out.stdout.strip()) == (0, library), out.stderr
    assert (installed / "rings").stat().st_mode & 0o777 == 0o700
    assert otelgpu_command(installed, "library").stdout.strip() == library


def test_run_returns_the_status_of_the_command(installed):
    assert otelgpu_command(installed, "run", sys.executable, "-c", "raise SystemExit(7)").returncode == 7


def test_run_says_what_is_wrong(installed):
    out = otelgpu_command(installed, "run", *PRINT, CUDA_INJECTION64_PATH="/opt/other.so")
    assert out.returncode == 1 and "CUDA_INJECTION64_PATH is '/opt/other.so'" in out.stderr
    out = otelgpu_command(installed, "run", "/no/such/command")
    assert out.returncode == 1 and "cannot start '/no/such/command': No such file" in out.stderr
    (installed / "file").write_text("")
    out = otelgpu_command(installed, "run", *PRINT, OTELGPU_CAPTURE_DIR=str(installed / "file" / "rings"))
    assert out.returncode == 1 and "(set OTELGPU_CAPTURE_DIR to one that can be written)" in out.stderr
    (installed / "site" / "otelgpu" / "libotelgpu_capture.so").unlink()
    out = otelgpu_command(installed, "run", *PRINT)
    assert out.returncode == 1 and "this installation has no capture library (" in out.stderr
    assert otelgpu_command(installed).returncode == 2
    assert otelgpu_command(installed, "--help").returncode == 0
