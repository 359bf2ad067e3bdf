// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

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
