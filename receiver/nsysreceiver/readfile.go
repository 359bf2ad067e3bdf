// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/collector/consumer"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/regularfile"
)

// Options configures [ReadFile]. The zero value is usable. Package kinetoreceiver names the levels of
// detail and the extents.
type Options = profiletrace.Options

const (
	scopeName      = "github.com/otelgpu/otelgpu/receiver/nsysreceiver"
	defaultService = "nsys"
)

// Stats is the result of reading a file. Records are the rows of all tables that are used.
type Stats = profiletrace.Stats

// ReadFile reads one SQLite export of Nsight Systems and passes its spans to emit in batches, which
// emit owns. Nothing is emitted before the whole file has been read, so a rejected file
// (ErrNotExport; the error names the file) emits nothing. An error of emit stops reading and is
// returned.
func ReadFile(ctx context.Context, path string, o Options, emit consumer.ConsumeTracesFunc) (Stats, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return Stats{}, fmt.Errorf("cannot read Nsight Systems export %q: %w", path, err)
	}
	return ReadOpened(ctx, f, o, emit)
}

// ReadOpened is like ReadFile, for an open file, which it closes.
func ReadOpened(ctx context.Context, f *os.File, o Options, emit consumer.ConsumeTracesFunc) (Stats, error) {
	st, err := read(ctx, f, o, emit)
	if err != nil {
		return st, fmt.Errorf("cannot read Nsight Systems export %q: %w", f.Name(), err)
	}
	return st, nil
}

func read(ctx context.Context, f *os.File, o Options, emit consumer.ConsumeTracesFunc) (Stats, error) {
	path := f.Name()
	db, err := open(f)
	if err != nil {
		return Stats{}, err
	}
	defer db.Close()
	if err := db.useful(); err != nil {
		return Stats{}, err
	}
	source, timing := profiletrace.Source{Scope: scopeName, Root: "nsys profile", Service: defaultService}, "cupti"
	all := (*collect).all
	if len(db.runs()) > 0 {
		source.Root, source.Service, timing, all = "rocprofv3 profile", "rocprofv3", "roctracer", (*collect).rocpd
	}
	p := profiletrace.New(o, source)
	defer p.Close()
	p.Meta.TimingSource = timing
	c := &collect{
		db: db, p: p, processes: map[int64]bool{}, numbers: map[int64]int64{},
		texts: texts{table: db.Tables[tableStrings], held: map[int64]string{}},
	}
	if err = all(c, ctx); err == nil {
		c.job(path)
	}
	if err != nil {
		return Stats{Records: c.rows}, err
	}
	st, err := p.Emit(ctx, emit)
	st.Records = c.rows
	return st, err
}
