// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// words numbers names.
type words []string

func (w *words) id(s string) uint32 {
	for i, x := range *w {
		if x == s {
			return uint32(i + 1)
		}
	}
	*w = append(*w, s)
	return uint32(len(*w))
}

func (w *words) name(id uint32) string {
	if id == 0 {
		return ""
	}
	return (*w)[id-1]
}

// Three layers with two kernels each, the second of layer 1 in the backward pass; the device is
// idle before each layer.
func TestModulesMergeLayersAndAddUpToTheWindow(t *testing.T) {
	var w words
	var tree ModuleTree
	enter := func(in uint32, name string) uint32 { return tree.Enter(in, w.id(name), w.name) }
	d := NewDevice(&timeline.Splitter{})
	model := enter(0, "nn.Module: Model_0")
	at := int64(1000)
	run := func(node uint32, length int64, backward bool) {
		d.Add(&timeline.Activity{
			Start: at, End: at + length, Name: 1, Operator: 1, Module: node, Backward: backward,
			Work: &timeline.Work{FLOPs: 1000, Precision: "fp32"},
		}, &timeline.Launch{}, at)
		at += length
	}
	run(0, 50, false)
	for i := range 3 {
		layer := enter(model, fmt.Sprintf("nn.Module: Layer_%d", i))
		at += 10
		run(enter(layer, fmt.Sprintf("nn.Module: Linear_%d", 2*i)), 100, false)
		run(enter(layer, fmt.Sprintf("nn.Module: Linear_%d", 2*i+1)), 200, i == 1)
	}
	at += 7
	run(enter(0, "Optimizer.step#AdamW.step"), 100, false)
	r := d.Report(&Context{Name: w.name, Kernel: w.name, Modules: &tree})
	require.Len(t, r.Modules, 5)
	assert.Equal(t, Module{
		Name: "Model", Calls: 1, Kernels: 6, Time: 900, Backward: 200, Idle: 30, FLOPs: 6000,
		FLOPRate: 6000 / (900 * time.Nanosecond).Seconds(),
	}, r.Modules[0])
	layer := r.Modules[1]
	assert.Equal(t, "Layer", layer.Name)
	assert.Equal(t, 1, layer.Depth)
	assert.Equal(t, 3, layer.Instances)
	assert.EqualValues(t, 3, layer.Calls)
	assert.Equal(t, []ModuleInstance{{"Layer_0", 300, 10}, {"Layer_1", 300, 10}, {"Layer_2", 300, 10}}, layer.Each)
	assert.Equal(t, "Linear", r.Modules[2].Name)
	assert.Equal(t, 6, r.Modules[2].Instances)
	assert.Equal(t, 2, r.Modules[2].Depth)
	assert.Equal(t, "Optimizer.step#AdamW.step", r.Modules[3].Name)
	assert.Equal(t, NoModule, r.Modules[4].Name)
	var sum time.Duration
	for _, m := range r.Modules {
		if m.Depth == 0 {
			sum += m.Time + m.Idle
		}
	}
	assert.Equal(t, r.Window, sum)
	assert.Equal(t, r.Parts.Idle, r.Modules[0].Idle+r.Modules[3].Idle+r.Modules[4].Idle)
}

func TestNamesOfLayersAreGeneral(t *testing.T) {
	for name, want := range map[string]string{
		"nn.Module: BertLayer_11": "BertLayer", "nn.Module: Conv2d_3": "Conv2d", "nn.Module: Odd": "Odd", "layers.17.mlp": "layers.*.mlp",
		"block 3 of 24": "block * of *", "forward": "forward", "nn.Module: My_Layer": "My_Layer",
	} {
		assert.Equal(t, want, general(name), name)
	}
}

func TestOneAnnotationKeepsItsNumber(t *testing.T) {
	var w words
	var tree ModuleTree
	d := NewDevice(&timeline.Splitter{})
	d.Add(&timeline.Activity{Start: 0, End: 10, Module: tree.Enter(0, w.id("batch 7"), w.name)}, &timeline.Launch{}, 0)
	r := d.Report(&Context{Name: w.name, Kernel: w.name, Modules: &tree})
	require.Len(t, r.Modules, 1)
	assert.Equal(t, "batch 7", r.Modules[0].Name)
	assert.Zero(t, r.Modules[0].Instances)
}

// Names without end, or nested without end, cost bounded memory, and no time is lost.
func TestModulesAreBounded(t *testing.T) {
	var w words
	var tree ModuleTree
	d := NewDevice(&timeline.Splitter{})
	index := map[uint32]string{}
	text := func(id uint32) string { return index[id] }
	at, id := int64(0), uint32(0)
	run := func(node uint32) {
		d.Add(&timeline.Activity{Start: at, End: at + 10, Module: node}, &timeline.Launch{}, 0)
		at += 10
	}
	enter := func(in uint32, name string) uint32 {
		id++
		index[id] = name
		return tree.Enter(in, id, text)
	}
	for i := range maxModuleNodes + 1000 {
		run(enter(enter(0, fmt.Sprint("iteration ", i)), fmt.Sprint("layer ", i)))
	}
	node := uint32(0)
	for i := range maxModuleGroups + 100 {
		node = enter(node, "deep "+string(rune('a'+i%26))+fmt.Sprintf("%c", 'a'+i/26%26))
	}
	run(node)
	assert.LessOrEqual(t, len(tree.groups), maxModuleGroups)
	assert.LessOrEqual(t, len(tree.nodes), maxModuleNodes+2*maxModuleGroups)
	r := d.Report(&Context{Name: text, Kernel: w.name, Modules: &tree})
	var sum time.Duration
	for _, m := range r.Modules {
		if m.Depth == 0 {
			sum += m.Time + m.Idle
		}
	}
	assert.GreaterOrEqual(t, sum, r.Window-20)
	assert.Equal(t, "iteration *", r.Modules[0].Name)
	assert.Len(t, r.Modules[0].Each, maxInstances)
	assert.Equal(t, "layer *", r.Modules[1].Name)
	assert.Equal(t, r.Modules[0].Time, r.Modules[1].Time)
}
