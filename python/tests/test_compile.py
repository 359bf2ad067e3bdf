# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Sections in regions that torch.compile compiles to one graph."""

import pytest

import otelgpu


def test_sections_do_not_break_the_graph(exporter):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    @otelgpu.section("decorated")
    def cosine(x):
        return x.cos()

    def model(x):
        with otelgpu.section("inner", items=3):
            y = x.sin()
        return cosine(y)

    compiled = torch.compile(model, fullgraph=True, backend="eager")
    x = torch.ones(3)
    with otelgpu.section("outer"):
        assert torch.equal(compiled(x), model(x))
    assert otelgpu.flush(10)
    names = [s.name for s in exporter.get_finished_spans()]
    assert sorted(names) == ["decorated", "inner", "outer"], "of the call without torch.compile, and the outer one"
