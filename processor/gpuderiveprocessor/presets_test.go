// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func constant(to, value string) AttributeConfig { return AttributeConfig{To: to, Value: value} }
func from(source, to string) AttributeConfig    { return AttributeConfig{From: source, To: to} }

func TestPresetsAreValid(t *testing.T) {
	all, err := readPresets()
	require.NoError(t, err)
	assert.Len(t, all, 10)
	for name, p := range all {
		for i := range p.Mappings {
			assert.NoError(t, p.Mappings[i].validate(name, true))
		}
		for i := range p.ResourceMappings {
			assert.NoError(t, p.ResourceMappings[i].validate(name))
		}
	}
}

// Names of all three generations, and a user's, become the same; the newest identity wins.
func TestTrainersOfNVIDIAAreMapped(t *testing.T) {
	m := mapper{
		own: []MappingConfig{{Span: "nv.dl.training.loop_pass", Type: "step", Attributes: []AttributeConfig{
			from("n", "gpu.step.index"), constant("gpu.step.model.flop.count", "412e12"),
		}}},
		presets:  presets()["nemo_lens"].Mappings,
		resource: append([]ResourceConfig{{From: "my.run", To: "gpu.job.id"}}, presets()["nemo_lens"].ResourceMappings...),
	}
	for span, want := range map[string]map[string]any{
		"megatron.train_step":                           {"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": int64(7)},
		"megatron.train.iteration":                      {"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": int64(7)},
		"nv.dl.training.iteration":                      {"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": int64(7)},
		"rl.grpo.step":                                  {"gpu.operation.type": "step"},
		"nv.dl.training.loop_pass":                      {"gpu.operation.type": "step", "gpu.step.index": int64(9), "gpu.step.model.flop.count": 412e12},
		"megatron.optimizer_step":                       {"gpu.operation.type": "section", "gpu.operation.category": "optimizer"},
		"megatron.train.iteration.optimizer":            {"gpu.operation.type": "section", "gpu.operation.category": "optimizer"},
		"nv.dl.training.iteration.optimizer_step":       {"gpu.operation.type": "section", "gpu.operation.category": "optimizer"},
		"nv.mcore.microbatch.backward":                  {"gpu.operation.type": "section", "gpu.operation.category": "backward"},
		"megatron.p2p.recv_forward":                     {"gpu.operation.type": "section", "gpu.operation.category": "comm"},
		"nv.dl.training.checkpoint.exposed_save":        {"gpu.operation.type": "section", "gpu.operation.name": "checkpoint"},
		"megatron.startup":                              {"gpu.operation.type": "host", "gpu.operation.name": "startup"},
		"megatron.train":                                {},
		"megatron.train.first_iteration":                {},
		"nv.dl.training.iter_block":                     {},
		"nv.dl.training.checkpoint.save":                {},
		"nv.dl.training.checkpoint.exposed_save.nested": {},
	} {
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		require.NoError(t, rs.Resource().Attributes().FromRaw(map[string]any{
			"nv.dl.rank": "3", "dl.rank": 5, "dl.world_size": 8, "dl.gpu.uuid": "GPU-1", "dl.local_rank": "x", "nemo.run.id": "r",
		}))
		s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetName(span)
		require.NoError(t, s.Attributes().FromRaw(map[string]any{"megatron.iteration": 7, "nv.dl.training.step": 7, "n": 9}))
		m.mapAll(td)
		got := s.Attributes().AsRaw()
		for key, v := range want {
			assert.Equal(t, v, got[key], "%s of %s", key, span)
		}
		assert.Equal(t, len(want) > 0, got["gpu.operation.type"] != nil, span)
		delete(got, "n")
		attrs := rs.Resource().Attributes().AsRaw()
		assert.Equal(t, []any{int64(3), int64(8), "GPU-1", "r", nil},
			[]any{attrs["gpu.job.rank"], attrs["gpu.job.world_size"], attrs["hw.id"], attrs["gpu.job.id"], attrs["gpu.job.local_rank"]})
	}
}

func TestAConstantNumberMustBeOne(t *testing.T) {
	a := constant("gpu.step.model.flop.count", "many")
	require.ErrorContains(t, a.validate("x"), "`x::value` must be a number")
	a.Value, a.Values = "7", map[string]string{"1": "2"}
	require.ErrorContains(t, a.validate("x"), "must not have `values`")
}

// Ranks of NeMo-RL are numbered within their group of workers, which are separate jobs: their ranks
// are not compared with each other, nor with the driver's.
func TestWorkerGroupsAreSeparateJobs(t *testing.T) {
	m := mapper{presets: presets()["nemo_lens"].Mappings, resource: presets()["nemo_lens"].ResourceMappings}
	for group, want := range map[string]string{"": "rl-1", "policy": "rl-1/policy", "vllm": "rl-1/vllm"} {
		td := ptrace.NewTraces()
		attrs := td.ResourceSpans().AppendEmpty().Resource().Attributes()
		require.NoError(t, attrs.FromRaw(map[string]any{"nemo.run.id": "rl-1", "nv.dl.rank": "0", "nv.dl.world_size": 8}))
		if group != "" {
			attrs.PutStr("rl.worker_group", group)
		}
		for range 2 { // maps of a repeated batch change nothing
			m.mapAll(td)
		}
		got := attrs.AsRaw()
		assert.Equal(t, []any{want, int64(0), int64(8)}, []any{got["gpu.job.id"], got["gpu.job.rank"], got["gpu.job.world_size"]})
	}
}
