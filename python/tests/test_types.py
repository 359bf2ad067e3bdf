# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Results of type checkers for the package and for programs that use it."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "otelgpu"
PROGRAM = """
from typing import Iterator, List
import otelgpu

@otelgpu.section("f")
def f(x: int) -> str:
    return str(x)

@otelgpu.section("g")
async def g(x: int) -> str:
    return str(x)

@otelgpu.section("i")
def items(n: int) -> Iterator[int]:
    yield from range(n)

for step, item in otelgpu.loop("train", [1.5, 2.5], item_type="image"):
    step.items = round(item)
    with step.phase("forward", items=2, precision="bf16") as phase:
        phase.fail("text")
otelgpu.init("train", attributes={"k": 1})
print(otelgpu.report()["a"].rest.mean, otelgpu.flops.matmul((1, 2), (2, 3)))
numbers: Iterator[int] = items(3)
for turn in otelgpu.loop("train", total_steps=3):
    turn.items = 1
attributes: List[str] = [f(1)]
f("1")                                  # wrong
otelgpu.section("a", itms=1)            # wrong
otelgpu.section("a", precision="BF16")  # wrong
otelgpu.section("a", type="kopy")       # wrong
otelgpu.section("a", copy="h2d")        # wrong
step.phase("a", itms=1)                 # wrong
step.phase("a", precision="BF16")       # wrong
items("3")                              # wrong
item.append(1)                          # wrong
turn.itms = 1                           # wrong
otelgpu.loop("train", item_tpye="x")    # wrong
async def h() -> int:
    return await g(1)                   # wrong
"""
WRONG = [i for i, line in enumerate(PROGRAM.split("\n"), 1) if line.endswith("# wrong")]


def mypy(tmp_path, target, *options):
    pytest.importorskip("mypy")
    return subprocess.run([sys.executable, "-m", "mypy", *options, "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir",
                           str(tmp_path / "cache"), str(target)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "MYPYPATH": str(ROOT / "src")})


@pytest.mark.parametrize("version", ["3.10", "3.14"])
def test_the_package_passes_mypy_strict(tmp_path, version):
    out = mypy(tmp_path, PACKAGE, "--python-version", version)
    assert out.returncode == 0, out.stdout + out.stderr


def test_mypy_knows_the_types_of_a_program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    out = mypy(tmp_path, file)
    found = sorted({int(n) for n in re.findall(r"program\.py:(\d+): error", out.stdout)})
    assert found == WRONG, out.stdout + out.stderr


def test_pyright_finds_nothing_in_the_package_and_the_faults_of_a_program(tmp_path):
    pyright = shutil.which("pyright", path=str(pathlib.Path(sys.executable).parent)) or shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(PACKAGE.parent)]}))
    for version in ("3.10", "3.14"):
        out = subprocess.run([pyright, "-p", str(ROOT), "--pythonpath", sys.executable, "--pythonversion", version, "--outputjson"],
                             capture_output=True, text=True, timeout=300)
        assert not json.loads(out.stdout)["generalDiagnostics"], out.stdout
    out = subprocess.run([pyright, "-p", str(tmp_path), "--pythonpath", sys.executable, "--outputjson"],
                         capture_output=True, text=True, timeout=300)
    found = sorted({d["range"]["start"]["line"] + 1 for d in json.loads(out.stdout)["generalDiagnostics"]
                    if d["severity"] == "error"})
    assert found == WRONG, out.stdout
