// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/consumer"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
)

// Detail is how much of a file becomes spans. The zero value is auto.
type Detail = profiletrace.Level

// Levels of detail.
const (
	DetailAuto        = profiletrace.LevelAuto        // steps, annotations, collectives, copies and kernels that matter
	DetailSteps       = profiletrace.LevelSteps       // steps only
	DetailAnnotations = profiletrace.LevelAnnotations // and NVTX ranges
	DetailOperators   = profiletrace.LevelOperators   // and operators of PyTorch
	DetailKernels     = profiletrace.LevelKernels     // and all device activities with what launched them
)

// Extent selects the activities that the numbers of a window cover. The zero value is ExtentAll.
type Extent = profiletrace.Extent

// Extents; the last two are Holistic Trace Analysis's with and without include_last_profiler_step.
const (
	ExtentAll          = profiletrace.ExtentAll          // every activity
	ExtentSteps        = profiletrace.ExtentSteps        // launched by the end of the last step
	ExtentStepsButLast = profiletrace.ExtentStepsButLast // launched before the last step began
)

// Options of ReadFile. The zero value is usable.
type Options = profiletrace.Options

const (
	scopeName      = "github.com/otelgpu/otelgpu/receiver/nsysreceiver"
	defaultService = "nsys"
)

// Stats is the outcome of a file.
type Stats struct {
	profiletrace.Stats
	Rows int64 // rows of the tables that are used
}

// ReadFile reads one SQLite export of Nsight Systems and passes its spans to emit in batches, which emit owns. Nothing
// is emitted before the whole file was read, so that a rejected file (ErrNotExport; the error names it) leaves nothing
// behind. An error of emit ends reading and is returned.
func ReadFile(ctx context.Context, path string, o Options, emit consumer.ConsumeTracesFunc) (Stats, error) {
	st, err := read(ctx, path, o, emit)
	if err != nil {
		return st, fmt.Errorf("cannot read Nsight Systems export %q: %w", path, err)
	}
	return st, nil
}

func read(ctx context.Context, path string, o Options, emit consumer.ConsumeTracesFunc) (Stats, error) {
	db, err := open(path)
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
	st := Stats{Rows: c.rows}
	if err != nil {
		return st, err
	}
	st.Stats, err = p.Emit(ctx, emit)
	return st, err
}
