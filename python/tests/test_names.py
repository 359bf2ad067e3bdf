# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re

import pytest

import otelgpu
from otelgpu import _names

ROOT = pathlib.Path(__file__).resolve().parents[2]


def registry():
    pages = sorted((ROOT / "docs" / "semconv").glob("*.md"))
    if not pages:
        pytest.skip("not in a checkout of the repository: docs/semconv is not here")
    return "".join(p.read_text() for p in pages)


def test_every_name_is_in_the_registry():
    known = set(re.findall(r"^\| `([a-z0-9_.<>]+)`", registry(), re.M))
    for key, name in vars(_names).items():
        if key.isupper() and isinstance(name, str):
            assert name in known or any(k.startswith(name) and "<" in k for k in known) and name.endswith("."), name


def test_words_match_the_registry():
    text = registry()
    for name, words in _names.WORDS.items():
        row = re.search(rf"^\| `{re.escape(name)}` .* Values: (.*?)\. \|", text, re.M).group(1)
        assert tuple(re.findall(r"(?:^|, )`(\w+)` \(", row)) == words, name


def test_python_and_go_have_one_version():
    text = (pathlib.Path(__file__).parents[1] / "pyproject.toml").read_text()
    from otelgpu import _runtime
    assert re.search(r'^version = "(.*)"', text, re.M).group(1) == otelgpu.__version__ == _runtime.VERSION
    stated = [m.group(1) for p in sorted((ROOT / "gpuspan").rglob("*.go"))
              for m in re.finditer(r'^const Version = "(.*)"', p.read_text(), re.M)]
    if not (ROOT / "gpuspan").is_dir():
        pytest.skip("not in a checkout of the repository: gpuspan is not here")
    assert stated == [otelgpu.__version__]


def test_the_lowest_versions_are_those_that_are_tested():
    here = pathlib.Path(__file__).parents[1]
    declared = dict(re.findall(r'"([a-z-]+)>=([^";]+)[";]', (here / "pyproject.toml").read_text()))
    tested = dict(re.findall(r"^([a-z-]+)==(\S+)$", (here / "requirements-minimum.txt").read_text(), re.M))
    for name, version in tested.items():
        assert version.removesuffix(".0").removesuffix(".0") == declared[name], name
    assert set(declared) - set(tested) == {"setuptools", "mypy"}  # of the build, and of types, which the newest one checks
