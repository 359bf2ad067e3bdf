// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
	"github.com/otelgpu/otelgpu/semconv"
)

// loads finds how many requests a server ran. All requests of a server belong to one process in the
// energy attribution, whichever of the server's processes exports their spans, because the server
// counts them together.
type loads struct {
	reader devicesamples.LoadReader // nil: nothing is known

	mu    sync.Mutex
	names map[uint64]string // by the number of the process
	// Processes that sent requests, and the server that they belong to. Their work on the device is
	// the server's.
	servers map[uint64]uint64
	// Services that sent requests and have no count under their own name. The count without a name
	// is of one server only.
	unnamed map[string]struct{}
	arrived map[string]*arrivals // by load
	wait    int64                // for how long a batch waits at most, ns
}

// maxServers bounds the processes that sent requests.
const maxServers = 1 << 12

// serve records that a process sent a request, and returns the number of the process in the energy
// attribution: its server's, unless it is unknown which service the count is of.
func (l *loads) serve(r *resourceInfo) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.servers == nil || len(l.servers) >= maxServers {
		l.servers, l.unnamed = map[uint64]uint64{}, map[string]struct{}{}
	}
	if r.load == "" && len(l.unnamed) < maxServers {
		if _, ok := l.unnamed[r.service]; !ok {
			l.unnamed[strings.Clone(r.service)] = struct{}{}
		}
	}
	if l.ambiguous(r.load) {
		delete(l.servers, r.process)
		return r.process
	}
	l.servers[r.process] = r.server
	return r.server
}

// ambiguous reports whether a load is of one of several services. The caller holds the lock.
func (l *loads) ambiguous(load string) bool { return load == "" && len(l.unnamed) > 1 }

// unnamedServices returns the services that no count names, if there are several.
func (l *loads) unnamedServices() (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ambiguous("") {
		names = slices.Sorted(maps.Keys(l.unnamed))
	}
	return names
}

// processOf returns the number of the process in the energy attribution: its server's if it sent
// requests.
func (l *loads) processOf(process uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if server, ok := l.servers[process]; ok {
		return server
	}
	return process
}

// of returns the name of the load of a service.
func (l *loads) of(service string) (string, bool) {
	if l == nil || l.reader == nil {
		return "", false
	}
	return l.reader.LoadOf(service)
}

// server returns the number of the process that a load belongs to. There are as many as loads,
// which are bounded.
func (l *loads) server(seed maphash.Seed, name string) uint64 {
	id := maphash.String(seed, "load of "+name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.names == nil {
		l.names = map[uint64]string{}
	}
	l.names[id] = name
	return id
}

// all returns the names of the loads by the numbers of their processes.
func (l *loads) all() map[uint64]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.names)
}

// levels appends the load of a process on a board, on the clock of spans.
func (l *loads) levels(
	process uint64, board string, from, to, shift int64, dst []attribution.Level,
) []attribution.Level {
	if l == nil || l.reader == nil {
		return dst
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	name, ok := l.names[process]
	if !ok || l.ambiguous(name) {
		return dst
	}
	var levels [32]devicesamples.LoadLevel
	for _, x := range l.reader.LoadLevels(name, from+shift, to+shift, levels[:0]) {
		level := attribution.Level{Time: x.Time - shift, Running: x.Running}
		switch x.Running {
		case devicesamples.LoadLapsed:
			level.Running = attribution.Lapsed
		case devicesamples.LoadAhead:
			level.Running = attribution.Ahead
		default:
			level.Running = max(0, x.Running-float64(l.elsewhere(name, board, level.Time)))
		}
		dst = append(dst, level)
	}
	return dst
}

// known reports whether the share of a request is its fair one: the load of its server covers its
// time.
func (l *loads) known(r *resourceInfo, start, end int64) bool {
	if r.server == 0 {
		return false
	}
	l.mu.Lock()
	unclear := l.ambiguous(r.load)
	l.mu.Unlock()
	return !unclear && l.reader.LoadKnown(r.load, start, end)
}

// weightOf returns how many requests one represents at a sampling ratio; 0: the ratio is invalid.
func weightOf(v pcommon.Value) float64 {
	ratio := v.Double()
	if v.Type() == pcommon.ValueTypeStr { // OTEL_RESOURCE_ATTRIBUTES has texts only
		ratio, _ = strconv.ParseFloat(v.Str(), 64)
	}
	if ratio > 0 && ratio <= 1 {
		return 1 / ratio
	}
	return 0
}

// contradicted reports whether the server's count is lower than the requests that ran on one of the
// target's physical GPUs by their spans.
func (x *target) contradicted() bool {
	if x.res.server == 0 {
		return false
	}
	if x.board.dev.Contradicts(x.res.server) {
		return true
	}
	for _, s := range x.more {
		if s.board.dev.Contradicts(x.res.server) {
			return true
		}
	}
	return false
}

// countError returns the part of the energy of a request of some length, in ns, that may be wrong
// because its server's count is known at times only.
func (x *target) countError(length int64) float64 {
	if x.res.server == 0 {
		return 0
	}
	most := x.board.dev.CountError(x.res.server, length)
	for _, s := range x.more {
		most = max(most, s.board.dev.CountError(x.res.server, length))
	}
	return most
}

// bound writes that a request's energy is an upper bound.
func (a *attributes) bound(g *gpuSpan, x *target, to *results) {
	if x.request && (x.contradicted() || !a.loads.known(x.res, g.start+a.shift, g.end+a.shift)) {
		to.putStr(string(semconv.GPUEnergyBoundKey), semconv.GPUEnergyBoundUpper)
	}
}
