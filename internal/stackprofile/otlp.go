// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"crypto/rand"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/otelgpu/otelgpu/semconv"
)

// Profiles returns profiles as OTLP: one resource for each service, namespace and version, below it
// a profile for each window and type of values.
func Profiles(list []*Profile, scope func(pcommon.InstrumentationScope)) pprofile.Profiles {
	out := pprofile.NewProfiles()
	d := newDictionary(out.Dictionary())
	at := map[Source]pprofile.ProfilesSlice{}
	for _, p := range list {
		samples := p.Samples()
		for _, t := range Types() {
			if !has(samples, t) {
				continue
			}
			if _, ok := at[p.Source]; !ok {
				at[p.Source] = resourceOf(out, p.Source, scope)
			}
			d.profile(at[p.Source].AppendEmpty(), p, samples, t)
		}
	}
	return out
}

func has(samples []*Sample, t Type) bool {
	for _, s := range samples {
		if s.Values[t] != 0 {
			return true
		}
	}
	return false
}

func resourceOf(out pprofile.Profiles, src Source, scope func(pcommon.InstrumentationScope)) pprofile.ProfilesSlice {
	rp := out.ResourceProfiles().AppendEmpty()
	attrs := rp.Resource().Attributes()
	for _, kv := range [][2]string{
		{string(semconv.ServiceNameKey), src.Service},
		{"service.namespace", src.Namespace},
		{"service.version", src.Version},
	} {
		if kv[1] != "" {
			attrs.PutStr(kv[0], kv[1])
		}
	}
	sp := rp.ScopeProfiles().AppendEmpty()
	scope(sp.Scope())
	return sp.Profiles()
}

// dictionary builds the tables that all profiles of a message share. Index 0 of each is the zero
// value, as the protocol requires.
type dictionary struct {
	pprofile.ProfilesDictionary
	texts     map[string]int32
	locations map[*Frame]int32
	stacks    map[*Stack]int32
	labels    map[*Labels][]int32
	links     map[[24]byte]int32
	frames    []*Frame
}

func newDictionary(d pprofile.ProfilesDictionary) *dictionary {
	d.StringTable().Append("")
	d.MappingTable().AppendEmpty()
	d.LocationTable().AppendEmpty()
	d.FunctionTable().AppendEmpty()
	d.LinkTable().AppendEmpty()
	d.StackTable().AppendEmpty()
	d.AttributeTable().AppendEmpty()
	return &dictionary{
		ProfilesDictionary: d, texts: map[string]int32{"": 0}, locations: map[*Frame]int32{},
		stacks: map[*Stack]int32{}, labels: map[*Labels][]int32{}, links: map[[24]byte]int32{},
	}
}

func (d *dictionary) profile(out pprofile.Profile, p *Profile, samples []*Sample, t Type) {
	var id pprofile.ProfileID
	_, _ = rand.Read(id[:])
	out.SetProfileID(id)
	out.SetTime(pcommon.Timestamp(p.Start))
	out.SetDurationNano(p.End - p.Start)
	out.SampleType().SetTypeStrindex(d.text(t.String()))
	out.SampleType().SetUnitStrindex(d.text(t.Unit()))
	// Pyroscope takes the profile's name from the type of the period, and rejects profiles without
	// one.
	out.PeriodType().SetTypeStrindex(d.text("gpu"))
	out.PeriodType().SetUnitStrindex(d.text(Time.Unit()))
	out.SetPeriod(1)
	var r rounding
	for _, s := range samples {
		if s.Values[t] == 0 {
			continue
		}
		x := out.Samples().AppendEmpty()
		x.SetStackIndex(d.stack(s.Stack))
		x.SetLinkIndex(d.link(s))
		x.AttributeIndices().FromRaw(d.attributes(s.Labels))
		x.Values().Append(r.next(s.Values[t]))
	}
}

func (d *dictionary) text(s string) int32 {
	i, ok := d.texts[s]
	if !ok {
		i = int32(d.StringTable().Len())
		d.StringTable().Append(s)
		d.texts[s] = i
	}
	return i
}

func (d *dictionary) location(f *Frame) int32 {
	i, ok := d.locations[f]
	if !ok {
		fn := d.FunctionTable().AppendEmpty()
		fn.SetNameStrindex(d.text(f.Name))
		fn.SetSystemNameStrindex(d.text(f.Full))
		i = int32(d.LocationTable().Len())
		d.LocationTable().AppendEmpty().Lines().AppendEmpty().SetFunctionIndex(int32(d.FunctionTable().Len() - 1))
		d.locations[f] = i
	}
	return i
}

// stack adds the locations of a stack, the leaf first.
func (d *dictionary) stack(s *Stack) int32 {
	i, ok := d.stacks[s]
	if !ok {
		i = int32(d.StackTable().Len())
		at := d.StackTable().AppendEmpty().LocationIndices()
		d.frames = s.Frames(d.frames[:0])
		at.EnsureCapacity(len(d.frames))
		for _, frame := range slices.Backward(d.frames) {
			at.Append(d.location(frame))
		}
		d.stacks[s] = i
	}
	return i
}

func (d *dictionary) link(s *Sample) int32 {
	if s.Link.Span.IsEmpty() {
		return 0
	}
	var key [24]byte
	copy(key[:], s.Link.Trace[:])
	copy(key[16:], s.Link.Span[:])
	i, ok := d.links[key]
	if !ok {
		i = int32(d.LinkTable().Len())
		l := d.LinkTable().AppendEmpty()
		l.SetTraceID(s.Link.Trace)
		l.SetSpanID(s.Link.Span)
		d.links[key] = i
	}
	return i
}

func (d *dictionary) attributes(l *Labels) []int32 {
	list, ok := d.labels[l]
	if ok {
		return list
	}
	for _, kv := range l.texts() {
		a := d.AttributeTable().AppendEmpty()
		a.SetKeyStrindex(d.text(kv[0]))
		a.Value().SetStr(kv[1])
		list = append(list, int32(d.AttributeTable().Len()-1))
	}
	if l.Rank >= 0 {
		a := d.AttributeTable().AppendEmpty()
		a.SetKeyStrindex(d.text(string(semconv.GPUJobRankKey)))
		a.Value().SetInt(l.Rank)
		list = append(list, int32(d.AttributeTable().Len()-1))
	}
	d.labels[l] = list
	return list
}

// texts returns the labels that are texts and known, by the name of their attribute.
func (l *Labels) texts() (list [][2]string) {
	for _, kv := range [][2]string{
		{string(semconv.HWIDKey), l.Device},
		{string(semconv.HWModelKey), l.Model},
		{string(semconv.GPUOperationCategoryKey), l.Phase},
		{string(semconv.GPUThrottleReasonsKey), l.Throttle},
		{string(semconv.GPUActivityStateKey), l.State},
	} {
		if kv[1] != "" {
			list = append(list, kv)
		}
	}
	return list
}
