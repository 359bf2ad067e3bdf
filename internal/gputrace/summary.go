// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

import (
	"cmp"
	"slices"
)

// summary is what happened below a span and has no span of its own.
type summary struct {
	kernels, collectives, copies, memsets            int64
	kernelTime, collectiveTime, copyTime, memsetTime int64
	copyBytes, memsetBytes                           int64
	names                                            map[uint32]int64 // kernels: time by name
	ranges                                           int64
	cut                                              int64
	cutTime                                          int64
	cutSize                                          bool // by the limit on bytes
}

func (s *summary) add(a *activity) {
	switch {
	case a.comm:
		s.collectives++
		s.collectiveTime += a.duration
	case a.kind == KindKernel:
		s.kernels++
		s.kernelTime += a.duration
		if s.names == nil {
			s.names = map[uint32]int64{}
		}
		s.names[a.name] += a.duration
	case a.kind == KindCopy:
		s.copies++
		s.copyTime += a.duration
		s.copyBytes += a.detail.Bytes
	case a.kind == KindMemset:
		s.memsets++
		s.memsetTime += a.duration
		s.memsetBytes += a.detail.Bytes
	}
}

// topNames are the short names with most time, at most n, longest first.
func topNames(times map[uint32]int64, names *Names, n int) []string {
	if len(times) == 0 {
		return nil
	}
	short := make(map[string]int64, len(times))
	for id, t := range times {
		short[ShortName(names.Name(id))] += t
	}
	list := make([]string, 0, len(short))
	for s := range short {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Or(cmp.Compare(short[b], short[a]), cmp.Compare(a, b))
	})
	return list[:min(n, len(list))]
}
