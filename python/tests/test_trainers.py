# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of real trainers on the CPU: Lightning, Transformers and Accelerate, if they are installed."""

import types

import pytest
from opentelemetry import trace

import otelgpu

PHASES = "gpu.step.phase.duration."


def steps(exporter):
    assert otelgpu.flush(10)
    return [s for s in exporter.get_finished_spans() if s.name == "train"]


def check(got, indices, phases):
    assert [s.attributes["gpu.step.index"] for s in got] == indices
    for s in got:
        a = s.attributes
        mine = {k[len(PHASES):]: v for k, v in a.items() if k.startswith(PHASES)}
        assert set(mine) == phases
        assert sum(mine.values()) + a["gpu.step.other.duration"] == pytest.approx(a["gpu.step.host.duration"], abs=1e-6)
    for before, after in zip(got, got[1:]):
        assert before.end_time <= after.start_time + 1_000_000
    assert not trace.get_current_span().get_span_context().is_valid


def test_steps_of_lightning(exporter, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pl = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed")
    from otelgpu.lightning import GPUSteps

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch, index):
            return self.layer(batch[0]).square().mean()

        def validation_step(self, batch, index):
            self.layer(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(12, 8)), batch_size=4)
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
                         callbacks=[GPUSteps()])
    trainer.fit(Module(), loader, loader)
    got = steps(exporter)
    check(got, [1, 2, 3, 4, 5, 6], {"data", "forward", "backward", "optimizer"})
    assert [s.attributes["gpu.step.epoch"] for s in got] == [0, 0, 0, 1, 1, 1]
    assert [s.attributes["gpu.step.items"] for s in got] == [4] * 6
    assert {s.attributes["gpu.step.item.type"] for s in got} == {"sample"}


def test_steps_of_transformers(exporter, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
    pytest.importorskip("accelerate", reason="Accelerate is not installed")
    from otelgpu.transformers import GPUSteps

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, x, labels=None):
            out = self.layer(x)
            return {"loss": (out - labels).square().mean(), "logits": out}

    data = [{"x": torch.randn(8), "labels": torch.zeros(1)} for _ in range(16)]
    args = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=2, gradient_accumulation_steps=2, num_train_epochs=1,
        eval_strategy="steps", eval_steps=2, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
    transformers.Trainer(Model(), args, train_dataset=data, eval_dataset=data, callbacks=[GPUSteps()]).train()
    got = steps(exporter)
    check(got, [1, 2, 3, 4], {"data", "forward", "backward", "optimizer"})
    assert [s.attributes["gpu.step.items"] for s in got] == [4] * 4, "two batches of two"


@pytest.mark.parametrize("item_type, items", [(None, 8), ("token", 128)])
def test_items_and_flops_of_a_language_model(exporter, tmp_path, item_type, items):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
    pytest.importorskip("accelerate", reason="Accelerate is not installed")
    from otelgpu.transformers import GPUSteps

    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2))
    data = [{"input_ids": torch.ones(16, dtype=torch.long), "labels": torch.ones(16, dtype=torch.long)}] * 20
    args = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=2,
        save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
    transformers.Trainer(model, args, train_dataset=data, callbacks=[GPUSteps(item_type=item_type)]).train()
    want = 6 * 8 * 16 * sum(p.numel() for name, p in model.named_parameters() if "embed" not in name)
    for s in steps(exporter):
        assert (s.attributes["gpu.step.items"], s.attributes["gpu.step.item.type"]) == (items, item_type or "sample")
        assert s.attributes["gpu.step.model.flop.count"] == want
        assert s.attributes["gpu.flop.precision"] in ("fp32", "tf32")


def test_items_of_batches():
    from otelgpu._turns import _samples, _tokens

    def tensor(*shape):
        return types.SimpleNamespace(shape=shape)

    assert _samples(tensor(4, 3)) == _samples([tensor(4, 3), tensor(7)]) == _samples({"scale": tensor(), "x": tensor(4)}) == 4
    assert _samples({"a": [{"b": (tensor(5),)}]}) == 5 and _samples("text") == _samples({}) == 0
    assert _tokens({"input_ids": tensor(4, 16)}, ["input_ids"]) == 64 and _tokens({"x": tensor(4)}, ["input_ids"]) == 0
    assert _tokens({"input_values": tensor(4, 16, 9)}, ["input_values"]) == 64


def test_steps_of_accelerate(exporter):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed")
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(8, 1)
    loader = torch.utils.data.DataLoader(torch.randn(12, 8), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    model = otelgpu.watch_collectives(model)
    for step, batch in otelgpu.loop("train", loader):
        with step.phase("forward"):
            loss = model(batch).square().mean()
        with step.phase("backward"):
            accelerator.backward(loss)
        with step.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    check(steps(exporter), [1, 2, 3], {"data", "forward", "backward", "optimizer"})
