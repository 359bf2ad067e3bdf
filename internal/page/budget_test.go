// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

// full returns the report of a device with every list at its limit.
func full(ordinal int64) (r facts.Report) {
	r = facts.Report{Ordinal: ordinal, Window: time.Second}
	for i := range shownKernels {
		name := fmt.Sprintf("device %d: a kernel with a long name, as of a template with arguments, number %d", ordinal, i)
		r.ByKernel = append(r.ByKernel, facts.Kernel{Name: name, Count: 1, Time: time.Duration(1000 - i)})
		r.Operators = append(r.Operators, facts.Operator{Name: name, Shapes: "f32[1024,1024]", Kernels: 1})
	}
	for i := range shownProfileStep {
		r.ByStep = append(r.ByStep, facts.Step{Name: fmt.Sprint("ProfilerStep#", i), Time: time.Duration(i)})
	}
	for i := range int64(1000) {
		r.Memory = append(r.Memory, facts.Level{At: 1e18 + 1000*i, Bytes: i % 700})
	}
	for range 20 {
		r.Findings = append(r.Findings, finding.Finding{Kind: "host_work", Evidence: "a sentence of some length on the host"})
	}
	return r
}

func TestAReportOf64RanksIsAtMost2MB(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	b := NewBook()
	for rank := range int64(64) {
		name := fmt.Sprintf("rank%02d.json", rank)
		p := b.profile(name)
		for stream := range int64(6) {
			for i := range int64(4000) {
				p.timeline.add(rowKey{device: rank % 8, stream: stream}, 100_000*i, 100_000*i+50_000, computing,
					fmt.Sprintf("rank %d: kernel number %d", rank, i%400))
			}
		}
		b.Profile(name, []facts.Report{full(rank % 8)}, nil)
	}
	s := b.State(nil)
	var page bytes.Buffer
	require.NoError(t, Report(&page, s))
	assert.LessOrEqual(t, page.Len(), 2_000_000)
	assert.Greater(t, page.Len(), 800_000, "the room is used")
	require.Len(t, s.Profiles, 64)
	for _, p := range s.Profiles {
		d := &p.Devices[0]
		assert.Equal(t, shownKernels, len(d.ByKernel)+d.MoreKernels, "what is omitted is counted")
		assert.Equal(t, shownOperators, len(d.Operators)+d.MoreOperators)
		assert.Equal(t, shownProfileStep, len(d.ByStep)+d.MoreSteps)
		assert.Equal(t, 20, len(d.Findings)+d.MoreFindings)
		assert.EqualValues(t, 6, int64(len(p.Timeline.Rows))+p.Timeline.More)
		for _, list := range [][]int{{len(d.ByKernel)}, {len(d.Operators)}, {len(d.ByStep)}, {len(p.Timeline.Rows)}} {
			assert.Positive(t, list[0])
		}
		high := int64(0)
		for _, l := range d.Memory {
			high = max(high, l.Bytes)
		}
		assert.EqualValues(t, 699, high, "a coarser course keeps its peak")
	}
}

func TestAReportOfOneProfileKeepsItsLists(t *testing.T) {
	b := NewBook()
	b.profile("one").timeline.add(rowKey{}, 0, 1000, computing, "k")
	b.Profile("one", []facts.Report{full(0)}, nil)
	s := b.State(nil)
	d := &s.Profiles[0].Devices[0]
	assert.Len(t, d.ByKernel, shownKernels)
	assert.Len(t, d.Operators, shownOperators)
	assert.Len(t, d.ByStep, shownProfileStep)
	assert.Len(t, d.Memory, 1000)
	assert.Len(t, d.Findings, 20)
	assert.Zero(t, d.MoreKernels+d.MoreOperators+d.MoreSteps+d.MoreFindings)
	assert.Equal(t, []string{"k"}, s.Names)
}
