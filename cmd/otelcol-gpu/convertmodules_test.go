// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

// moduleNamed returns the module of the first device.
func moduleNamed(t *testing.T, list []facts.Module, name string) facts.Module {
	t.Helper()
	for _, m := range list {
		if m.Name == name {
			return m
		}
	}
	require.Fail(t, "no module "+name)
	return facts.Module{}
}

// The times were summed by a script over the kernels that were launched within frames of each
// class. Nothing runs concurrently in this trace.
func TestModulesOfARecordedModel(t *testing.T) {
	path := recorded.Path(t, "kineto", "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
	out := t.TempDir()
	stdout, err := convertOutput(t, "--html", "--out", out, path)
	require.NoError(t, err)
	s, _ := reportState(t, filepath.Join(out, "report.html"))
	d := &s.Profiles[0].Devices[0]
	for name, want := range map[string]struct {
		microseconds       float64
		kernels, instances int
	}{
		"Qwen2Model": {31905.5, 1198, 0}, "Qwen2DecoderLayer": {31674.2, 1176, 24},
		"Qwen2Attention": {15548.7, 552, 24}, "Qwen2MLP": {8042.8, 192, 24}, "SiLU": {925.1, 24, 24},
	} {
		m := moduleNamed(t, d.Modules, name)
		assert.InDelta(t, want.microseconds, float64(m.Time)/1e3, 0.5, name)
		assert.EqualValues(t, want.kernels, m.Kernels, name)
		assert.Equal(t, want.instances, m.Instances, name)
	}
	var sum time.Duration
	for _, m := range d.Modules {
		if m.Depth == 0 {
			sum += m.Time + m.Idle
		}
	}
	assert.InDelta(t, d.Window.Seconds(), sum.Seconds(), 0.002*d.Window.Seconds(), "but for rows too small to list")
	assert.Contains(t, stdout, "    Qwen2DecoderLayer x 24\n")
}

// traceEvents are the events of a trace whose operators launch one kernel each.
type traceEvents struct {
	list []string
	last int // correlation
}

func (e *traceEvents) put(format string, args ...any) {
	e.list = append(e.list, fmt.Sprintf(format, args...))
}

// op adds an operator of 40 µs, its launch, and a kernel of 50 µs.
func (e *traceEvents) op(name string, tid, at, sequence int) {
	e.last++
	e.put(`{"ph":"X","cat":"cpu_op","name":%q,"pid":1,"tid":%d,"ts":%d,"dur":40,"args":{"Sequence number":%d}}`, name, tid, at, sequence)
	e.put(`{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":%d,"ts":%d,"dur":5,"args":{"correlation":%d}}`, tid, at+10, e.last)
	e.put(`{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":%d,"dur":50,"args":{"device":0,"stream":7,"correlation":%d}}`, at+30, e.last)
}

// The backward pass runs on a thread without modules; the sequence numbers of its functions lead to
// the forward pass.
func TestTheBackwardPassBelongsToItsModules(t *testing.T) {
	var events traceEvents
	for layer := range 2 {
		events.put(`{"ph":"X","cat":"python_function","name":"nn.Module: Layer_%d","pid":1,"tid":1,"ts":%d,"dur":90,"args":{}}`, layer, 1000+100*layer)
		events.op("aten::mm", 1, 1010+100*layer, 17+layer)
	}
	for layer := range 2 {
		events.op("autograd::engine::evaluate_function: MmBackward0", 2, 1300+100*layer, 18-layer)
	}
	dir, out := t.TempDir(), t.TempDir()
	file := writeFile(t, dir, "trace.json", `{"schemaVersion":1,"traceEvents":[`+strings.Join(events.list, ",")+`]}`)
	stdout, err := convertOutput(t, "--html", "--out", out, file)
	require.NoError(t, err)
	s, _ := reportState(t, filepath.Join(out, "report.html"))
	m := moduleNamed(t, s.Profiles[0].Devices[0].Modules, "Layer")
	assert.Equal(t, 200*time.Microsecond, m.Time)
	assert.Equal(t, 100*time.Microsecond, m.Backward)
	require.Len(t, m.Each, 2)
	assert.Equal(t, 100*time.Microsecond, m.Each[0].Time)
	assert.Equal(t, 100*time.Microsecond, m.Each[1].Time)
	assert.Len(t, s.Profiles[0].Devices[0].Modules, 1)
	assert.Contains(t, stdout, "modules and annotations of GPU 0")
	assert.Contains(t, stdout, "Layer x 2")

	// Of a folder, one table for each file would bury the findings.
	stdout, err = convertOutput(t, "--out", t.TempDir(), dir)
	require.NoError(t, err)
	assert.NotContains(t, stdout, "modules and annotations")
}

// An operator that computes no gradient, as zero_ in zero_grad, states the number that the next one
// gets which does. The backward pass belongs to the latter, also if no module is around it. Numbers
// of other threads are unrelated.
func TestTheBackwardPassDoesNotBelongToZeroGrad(t *testing.T) {
	var events traceEvents
	events.put(`{"ph":"X","cat":"user_annotation","name":"Optimizer.zero_grad#SGD.zero_grad","pid":1,"tid":1,"ts":1000,"dur":90,"args":{}}`)
	events.op("aten::zero_", 1, 1010, 17)
	events.op("CompiledFunction", 1, 1110, 17)
	events.put(`{"ph":"X","cat":"python_function","name":"nn.Module: Loss_0","pid":1,"tid":1,"ts":1200,"dur":90,"args":{}}`)
	events.op("aten::sum", 1, 1210, 18)
	events.op("autograd::engine::evaluate_function: SumBackward0", 2, 1310, 18)
	events.op("aten::expand", 3, 1410, 18) // another thread's number
	events.op("autograd::engine::evaluate_function: CompiledFunctionBackward", 2, 1510, 17)
	events.op("autograd::engine::evaluate_function: SumBackward0", 2, 1610, 18)
	file, out := writeFile(t, t.TempDir(), "trace.json", `{"schemaVersion":1,"traceEvents":[`+strings.Join(events.list, ",")+`]}`), t.TempDir()
	_, err := convertOutput(t, "--html", "--out", out, file)
	require.NoError(t, err)
	s, _ := reportState(t, filepath.Join(out, "report.html"))
	modules := s.Profiles[0].Devices[0].Modules
	zero := moduleNamed(t, modules, "Optimizer.zero_grad#SGD.zero_grad")
	assert.Equal(t, 50*time.Microsecond, zero.Time)
	assert.Zero(t, zero.Backward)
	assert.Equal(t, 100*time.Microsecond, moduleNamed(t, modules, "Loss").Backward)
}
