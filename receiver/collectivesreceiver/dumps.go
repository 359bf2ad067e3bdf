// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package collectivesreceiver

import (
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/otelgpu/otelgpu/internal/flightrecorder"
)

// dumps finds new dumps of flight recorders, folder by folder.
type dumps struct {
	cfg     *FlightRecorderConfig
	folders map[string]*folder
}

// folder has the dumps of a job.
type folder struct {
	state uint64    // of the files: names, sizes and times
	since time.Time // when the state was seen first
	done  uint64    // the state that was compared
	found map[string]bool
}

// result is what the dumps of a folder show.
type result struct {
	path  string
	dumps int
	world int // ranks of the job, as far as the dumps show
	errs  []error
	hangs []flightrecorder.Hang // that were not reported before
	note  string                // why the dumps were not judged; empty: they were
}

var seed = maphash.MakeSeed()

// lookup compares the dumps of the folders that changed, and have not changed since for long
// enough.
func (d *dumps) lookup(now time.Time) (out []result) {
	if d.folders == nil {
		d.folders = map[string]*folder{}
	}
	files := map[string][]string{}
	states := map[string]*maphash.Hash{}
	for _, p := range d.cfg.Include {
		m, _ := doublestar.FilepathGlob(p, doublestar.WithFilesOnly()) // folders that cannot be read have no files
		slices.Sort(m)
		for _, path := range m {
			info, err := os.Stat(path)
			if err != nil || now.Sub(info.ModTime()) > d.cfg.MaxAge {
				continue
			}
			at := filepath.Dir(path)
			if slices.Contains(files[at], path) {
				continue
			}
			files[at] = append(files[at], path)
			if states[at] == nil {
				states[at] = &maphash.Hash{}
				states[at].SetSeed(seed)
			}
			fmt.Fprintln(states[at], path, info.Size(), info.ModTime().UnixNano())
		}
	}
	for at := range d.folders {
		if files[at] == nil {
			delete(d.folders, at)
		}
	}
	for at, list := range files {
		f := d.folders[at]
		state := states[at].Sum64()
		if f == nil {
			f = &folder{found: map[string]bool{}}
			d.folders[at] = f
		}
		if f.state != state {
			f.state, f.since = state, now
		}
		if f.done == state || now.Sub(f.since) < d.cfg.Settle {
			continue
		}
		f.done = state
		if r := f.compare(at, list); r.dumps > 0 || len(r.errs) > 0 {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b result) int { return len(a.path) - len(b.path) })
	return out
}

// compare reads the dumps of a folder.
func (f *folder) compare(at string, files []string) result {
	r := result{path: at}
	var read []*flightrecorder.Dump
	for _, path := range files {
		d, err := flightrecorder.ReadFile(path)
		switch {
		case errors.Is(err, flightrecorder.ErrNotADump):
		case err != nil:
			r.errs = append(r.errs, &flightrecorder.UnreadableError{Path: path, Err: err})
		default:
			read = append(read, d)
		}
	}
	r.dumps = len(read)
	if len(read) == 0 {
		return r
	}
	report := flightrecorder.Analyze(read, r.errs...)
	r.note, r.world = report.NotJudged, report.World
	for i := range report.Hangs {
		h := &report.Hangs[i]
		if key := fmt.Sprint(h.Cause, h.Ranks, h.Group, h.Sequence); !f.found[key] {
			f.found[key] = true
			r.hangs = append(r.hangs, *h)
		}
	}
	return r
}
