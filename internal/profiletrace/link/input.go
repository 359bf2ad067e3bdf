// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/semconv"
)

// Input is the events of a profile, and what linking and judging them needs.
type Input struct {
	*event.Store
	Recording Recording
	Extent    Extent
	Paths     bool   // critical paths are found
	Device    string // model of devices that the file does not name
	Service   string // service.name of a file that states none
	JobID     string // gpu.job.id of a file that states none
	Root      string // name of the window
	Stacks    Stacks // of launches, if a sweep had an observer

	captures Captures   // of other profiles
	comm     []kernelIs // by name
	short    []string   // by name; empty: not looked up yet
}

// Resource returns a resource attribute that the file states apart from its own fields; "" for
// none.
func (in *Input) Resource(k attribute.Key) string { return in.Meta.Resource[string(k)] }

// Rank returns the rank of the profile in its job; -1 and 0 if they are unknown.
func (in *Input) Rank() (rank, world int64) {
	rank, world = -1, in.Meta.WorldSize
	if in.Meta.HasRank {
		rank = in.Meta.Rank
	}
	for key, to := range map[attribute.Key]*int64{semconv.GPUJobRankKey: &rank, semconv.GPUJobWorldSizeKey: &world} {
		if n, err := strconv.ParseInt(in.Resource(key), 10, 64); err == nil {
			*to = n
		}
	}
	return rank, world
}

// Recording estimates what recording costs a thread of the host.
type Recording struct {
	Operator, Call, Frame time.Duration // for each
	// Launch is how long a call that launches took on the machine where the others were measured:
	// where it is shorter, the host is faster, and they are less in proportion.
	Launch time.Duration
}

// since scales a sum of costs by how long a launch took, in ns.
func (r *Recording) since(sum time.Duration, launch int64) int64 {
	if r.Launch <= 0 || launch >= int64(r.Launch) {
		return int64(sum)
	}
	return int64(float64(sum) * float64(launch) / float64(r.Launch))
}

// of returns the cost of a range.
func (r *Recording) of(k event.Kind) time.Duration {
	switch k {
	case event.KindOperator:
		return r.Operator
	case event.KindRuntime:
		return r.Call
	case event.KindFrame, event.KindModule:
		return r.Frame
	}
	return 0
}

// kernelIs is whether a kernel communicates; the zero value means not looked up yet.
type kernelIs uint8

const (
	computing kernelIs = iota + 1
	communicating
)

// Communicates reports whether kernels of the name are communication, found once for each.
func (in *Input) Communicates(name uint32) bool {
	if int(name) >= len(in.comm) {
		in.comm = append(in.comm, make([]kernelIs, in.Names.Len()-len(in.comm))...)
	}
	is := &in.comm[name]
	if *is == 0 {
		if *is = computing; vocabulary.IsCommunication(in.Names.Name(name)) {
			*is = communicating
		}
	}
	return *is == communicating
}

// Collective returns the operation of a collective and the bytes that it moves; empty and 0 are
// unknown.
func (in *Input) Collective(a *Activity) (operation string, bytes int64) {
	d := &a.Detail
	operation = cmp.Or(d.Collective, vocabulary.CollectiveName(in.Names.Name(a.Name)))
	return operation, max(0, vocabulary.CollectiveSize(operation, d.InElements, d.OutElements,
		vocabulary.ElementSize(d.ElementType)))
}

// ModelOf returns the model that the file states, else the one that the options name.
func (in *Input) ModelOf(ordinal int64) string {
	return cmp.Or(in.Meta.DeviceOf(ordinal).Model, in.Device)
}

// LimitsOf returns what limits the blocks on a device, as the file states it, else only the
// multiprocessors of its model.
func (in *Input) LimitsOf(ordinal int64) occupancy.Device {
	l := in.Meta.DeviceOf(ordinal).Limits
	l.Multiprocessors = cmp.Or(l.Multiprocessors, int64(facts.PeakOf(in.ModelOf(ordinal)).SMs))
	return l
}

// ShortName returns the name of a kernel without its namespaces, arguments and template arguments.
func (in *Input) ShortName(name uint32) string {
	if int(name) >= len(in.short) {
		in.short = append(in.short, make([]string, in.Names.Len()-len(in.short))...)
	}
	if in.short[name] == "" {
		in.short[name] = vocabulary.ShortName(in.Names.Name(name))
	}
	return in.short[name]
}

// Peak returns the peak of a device: of its model, and what the file states instead.
func (in *Input) Peak(ordinal int64) facts.Peak {
	p := facts.PeakOf(in.ModelOf(ordinal))
	if d := in.Meta.DeviceOf(ordinal); d.Ordinal == ordinal {
		p.State(in.ModelOf(ordinal), d.FLOPRate, d.Bandwidth)
	}
	return p
}

// Naming returns a context with the names only.
func (in *Input) Naming() *facts.Context {
	return &facts.Context{Name: in.Names.Text, Kernel: in.ShortName, Framework: in.Meta.Framework}
}
