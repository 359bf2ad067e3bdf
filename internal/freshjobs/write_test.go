// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const variants = 3

// shares of the time of a step that the cause costs, by variant.
var shares = [variants][2]float64{{0.16, 0.28}, {0.3, 0.5}, {0.52, 0.76}}

func kinds() []kind { return slices.Concat(trainKinds, stepKinds, serverKinds, hpcKinds) }

// right returns the kinds of findings that are right first for a variant.
func (k kind) right(variant int) []string {
	if variant == variants-1 {
		return strings.Fields(k.accept + " " + k.also)
	}
	return strings.Fields(k.accept)
}

func slug(name string) string {
	return strings.NewReplacer(" ", "_", ",", "", ".", "").Replace(name)
}

// simulate runs a job whose cause costs x microseconds a step.
func (k kind) simulate(seed uint64, x float64) *sim {
	s := newSim(seed, k.models[int(seed)%len(k.models)])
	s.x = x
	k.build(s)
	return s
}

// job returns a variant of a kind, and the share of its time that would not pass without the cause.
func (k kind) job(index, variant int) (*sim, float64) {
	seed := uint64(index*variants + variant)
	s := k.simulate(seed, k.cause(index, variant))
	if k.fixed {
		return s, 0
	}
	return s, 1 - k.simulate(seed, 0).window()/s.window()
}

// cause returns what costs the wanted share, in microseconds per step.
func (k kind) cause(index, variant int) float64 {
	if k.fixed {
		return 0
	}
	seed := uint64(index*variants + variant)
	without := k.simulate(seed, 0).window()
	return solve(func(x float64) float64 { return 1 - without/k.simulate(seed, x).window() }, k.within(seed, variant))
}

// within is the wanted share. Waiting for work is a separate finding from half of the time on.
func (k kind) within(seed uint64, variant int) float64 {
	if k.accept == "no_load" {
		return 0.4 + 0.6*within(seed, variant)
	}
	return within(seed, variant)
}

func within(seed uint64, variant int) float64 {
	b := shares[variant]
	return b[0] + rand.New(rand.NewPCG(seed, 5)).Float64()*(b[1]-b[0])
}

// solve returns the cause that costs the wanted share.
func solve(gain func(float64) float64, want float64) float64 {
	low, high := 0.0, 1000.0
	for gain(high) < want && high < 1e7 {
		low, high = high, 1.6*high
	}
	for range 9 {
		if mid := (low + high) / 2; gain(mid) < want {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// write stores a job in the format of its kind.
func (k kind) write(t testing.TB, s *sim, dir, name string) string {
	var text []byte
	ext := ".pt.trace.json"
	switch k.format {
	case "nsys":
		path := filepath.Join(dir, name+".sqlite")
		s.nsys(t, path)
		return path
	case "kineto2021":
		text = s.kineto2021()
	case "rocprof":
		text, ext = s.rocprof(), "_results.json"
	case "proton":
		text, ext = s.proton(), ".json"
	case "onnx":
		text, ext = s.onnx(), ".json"
	default:
		text = s.kineto()
	}
	path := filepath.Join(dir, name+ext)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

func (k rankKind) job(index, variant int) ([]*sim, int, float64) {
	all, late := k.ranks(rankSeed(index, variant), k.cost(index, variant))
	return all, late, k.want(index, variant)
}

func rankSeed(index, variant int) uint64 { return uint64(900 + index*variants + variant) }

func (k rankKind) want(index, variant int) float64 {
	if k.accept == "-" || k.slow != nil {
		return 0
	}
	return 0.15 + 0.5*(within(rankSeed(index, variant), variant)-0.15)
}

// cost returns the delay of the late rank, in microseconds per step.
func (k rankKind) cost(index, variant int) float64 {
	seed, want := rankSeed(index, variant), k.want(index, variant)
	if want == 0 {
		return 3000
	}
	wall := func(x float64) float64 {
		all, _ := k.ranks(seed, x)
		longest := 0.0
		for _, s := range all {
			longest = max(longest, s.window())
		}
		return longest
	}
	without := wall(0)
	return solve(func(x float64) float64 { return 1 - without/wall(x) }, want)
}

// truth is what is known of a file or folder.
type truth struct {
	Kind   string   `json:"kind"`
	Path   string   `json:"path"`
	Accept []string `json:"accept"`
	Share  float64  `json:"share"`
	Rank   int      `json:"rank"` // that is late; -1: none
}

// TestWriteFiles writes the files of all jobs with their truth to the folder that FRESHJOBS_OUT
// names, for runs of the program.
func TestWriteFiles(t *testing.T) {
	dir := os.Getenv("FRESHJOBS_OUT")
	if dir == "" {
		t.Skip("FRESHJOBS_OUT names no folder")
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	var truths []truth
	for i, k := range kinds() {
		for v := range variants {
			s, share := k.job(i, v)
			path := k.write(t, s, dir, fmt.Sprintf("%s_%d", slug(k.name), v))
			truths = append(truths, truth{k.name, path, k.right(v), share, -1})
			if !k.fixed {
				assert.InDelta(t, k.within(uint64(i*variants+v), v), share, 0.13, k.name)
				assert.Greater(t, share, 0.14, k.name)
			}
		}
	}
	for i, k := range rankKinds {
		for v := range variants {
			all, late, share := k.job(i, v)
			folder := filepath.Join(dir, fmt.Sprintf("ranks_%s_%d", slug(k.name), v))
			require.NoError(t, os.MkdirAll(folder, 0o755))
			for r, s := range all {
				if k.absent > 0 && r == (late+k.absent)%k.world {
					continue
				}
				require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("rank%d.pt.trace.json", r)), s.kineto(), 0o600))
			}
			if k.slow != nil || k.accept == "-" {
				late = -1
			}
			truths = append(truths, truth{k.name, folder, strings.Fields(k.accept), share, late})
		}
	}
	text, err := json.MarshalIndent(truths, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "truth.json"), text, 0o600))
}
