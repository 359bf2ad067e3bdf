// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

func request(id, parent byte, start, end int64) *attribution.Span {
	return &attribution.Span{
		Key: attribution.Key{Trace: [16]byte{1}, Span: [8]byte{id}}, Parent: [8]byte{parent}, Start: start, End: end,
	}
}

func on(boards ...string) *target {
	x := &target{targetName: targetName{res: &resourceInfo{load: "service"}}, board: &board{id: boards[0]}}
	for _, id := range boards[1:] {
		x.more = append(x.more, spot{board: &board{id: id}})
	}
	return x
}

func TestRequestsOfOtherBoardsRunElsewhere(t *testing.T) {
	l := loads{wait: 1000}
	l.arrive(on("a"), request(1, 0, 10, 20))
	l.arrive(on("a"), request(2, 0, 15, 30))
	l.arrive(on("b"), request(3, 0, 15, 18))
	l.arrive(on("b", "c"), request(4, 0, 12, 25))
	for _, x := range []struct {
		board string
		at    int64
		want  int
	}{
		{"a", 11, 0},
		{"a", 12, 1},
		{"a", 16, 2},
		{"a", 18, 1},
		{"a", 25, 0},
		{"b", 9, 0},
		{"b", 10, 1},
		{"b", 16, 2},
		{"b", 20, 1},
		{"c", 16, 3},
		{"d", 16, 4},
	} {
		assert.Equal(t, x.want, l.elsewhere("service", x.board, x.at), "%s at %d", x.board, x.at)
	}
	assert.Zero(t, l.elsewhere("other", "d", 16))
}

// A worker's request around the engine's request is the same request, in any order of arrival.
func TestARequestInsideAnotherRunsElsewhereOnce(t *testing.T) {
	outer, inner := request(1, 9, 10, 30), request(2, 1, 12, 28)
	for _, order := range [][]*attribution.Span{{outer, inner}, {inner, outer}} {
		l := loads{wait: 1000}
		for _, s := range order {
			l.arrive(on("a"), s)
		}
		assert.Equal(t, 1, l.elsewhere("service", "b", 20))
	}
	l := loads{wait: 1000}
	for id := range byte(3) { // three sequences of one call, below a span that is not a request
		l.arrive(on("a"), request(id+1, 9, 10, 30))
	}
	assert.Equal(t, 3, l.elsewhere("service", "b", 20))
}

func TestOldArrivalsAreForgotten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var times requestTimes
	type span struct{ start, end int64 }
	var all []span
	for i := range int64(50_000) {
		s := span{i*10 - r.Int64N(500), i*10 + r.Int64N(500)}
		all = append(all, s)
		times.add(s.start, s.end, 2000)
		if i%997 != 0 {
			continue
		}
		for _, at := range []int64{s.end - 1400, s.end - 1000, s.end} {
			n := 0
			for _, x := range all {
				if x.start <= at && x.end > at {
					n++
				}
			}
			assert.Equal(t, n, times.running(at))
		}
	}
	assert.Less(t, len(times.ends), 2000)
	assert.Len(t, times.starts, len(times.ends))
}
