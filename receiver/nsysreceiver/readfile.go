// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/consumer"

	"github.com/otelgpu/otelgpu/internal/gputrace"
)

// Detail is how much of a file becomes spans. The zero value is auto.
type Detail = gputrace.Level

// Levels of detail.
const (
	DetailAuto        = gputrace.LevelAuto        // steps, annotations, collectives, copies and kernels that matter
	DetailSteps       = gputrace.LevelSteps       // steps only
	DetailAnnotations = gputrace.LevelAnnotations // and NVTX ranges
	DetailOperators   = gputrace.LevelOperators   // and operators of PyTorch
	DetailKernels     = gputrace.LevelKernels     // and all device activities with what launched them
)

// Extent is which activities the numbers of a window are of. The zero value is ExtentAll.
type Extent = gputrace.Extent

// Extents; the last two are those of Holistic Trace Analysis with and without include_last_profiler_step.
const (
	ExtentAll          = gputrace.ExtentAll          // every activity
	ExtentSteps        = gputrace.ExtentSteps        // launched by the end of the last step
	ExtentStepsButLast = gputrace.ExtentStepsButLast // launched before the last step began
)

// Options of ReadFile. The zero value is usable.
type Options = gputrace.Options

const (
	scopeName      = "github.com/otelgpu/otelgpu/receiver/nsysreceiver"
	defaultService = "nsys"
)

// Stats says what became of a file.
type Stats struct {
	gputrace.Stats
	Rows int64 // rows of the tables that are used
}

// ReadFile reads one SQLite export of Nsight Systems and hands its spans to emit in batches, which emit owns. Nothing
// is emitted before the whole file was read, so that a file that is refused (ErrNotExport; the error names it) leaves
// nothing behind. An error of emit ends reading and is returned.
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
	source, timing := gputrace.Source{Scope: scopeName, Root: "nsys profile", Service: defaultService}, "cupti"
	all := (*collect).all
	if len(db.runs()) > 0 {
		source.Root, source.Service, timing, all = "rocprofv3 profile", "rocprofv3", "roctracer", (*collect).rocpd
	}
	p := gputrace.New(o, source)
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
