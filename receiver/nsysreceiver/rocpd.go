// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// rocpd reads a database that rocprofv3 writes with --output-format rocpd, and since ROCm 7 by
// default (ROCprofiler-SDK, share/rocprofiler-sdk-rocpd/*.sql). The names of its tables end in the
// id of the run; a file may have several:
//
//	rocpd_string              id, string: names of calls, copies and categories
//	rocpd_info_node           hostname
//	rocpd_info_process        id, pid, environment (JSON)
//	rocpd_info_thread         id, tid
//	rocpd_info_agent          id, type, type_index: the number among agents of a type, product_name, name, extdata (JSON)
//	rocpd_info_kernel_symbol  id, display_name, kernel_name, arch_vgpr_count, accum_vgpr_count, sgpr_count
//	rocpd_event               id, category_id, stack_id: the same of a call and of what it launched, extdata (JSON)
//	rocpd_kernel_dispatch     start, end (ns since the start of the machine), agent_id, kernel_id, event_id,
//	                          group_segment_size (of LDS) …
//	rocpd_memory_copy         start, end, dst_agent_id, src_agent_id, size, name_id, event_id …
//	rocpd_region              start, end, tid, name_id, event_id: calls of HIP and HSA, ranges of roctx
//
// As of rocprofv3's JSON, calls of HSA are not read.
type rocpd struct {
	c       *collect
	run     string // what names of tables end in
	known   *event.ROCm
	pids    map[int64]int64
	threads map[int64]int64
}

// rocDispatch is the table that every run has.
const rocDispatch = "rocpd_kernel_dispatch"

// runs returns the endings of the names of rocpd's tables.
func (d *database) runs() []string {
	var runs []string
	for name := range d.Tables {
		if run, ok := strings.CutPrefix(name, rocDispatch); ok {
			runs = append(runs, run)
		}
	}
	slices.Sort(runs)
	return runs
}

// rocpd reads all runs of a database.
func (c *collect) rocpd(ctx context.Context) error {
	c.p.Faults = append(c.p.Faults,
		"times count from the start of the machine, shown as 1970: the file does not say when that was")
	c.variables = map[string]string{}
	for _, run := range c.db.runs() {
		r := &rocpd{c: c, run: run, known: event.NewROCm(), pids: map[int64]int64{}, threads: map[int64]int64{}}
		c.texts = texts{table: c.db.Tables["rocpd_string"+run], column: "string", held: map[int64]string{}}
		for _, step := range []func(context.Context) error{r.about, r.dispatches, r.copies, r.regions} {
			if err := step(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *rocpd) each(ctx context.Context, table string, columns []string, f func(row []any) error) error {
	return r.c.db.each(ctx, table+r.run, columns, f)
}

// maxRocNames bounds the processes and threads that are kept.
const maxRocNames = 1 << 20

// about reads the agents, processes, threads and kernels.
func (r *rocpd) about(ctx context.Context) error {
	m := &r.c.p.Meta
	numbers := func(to map[int64]int64) func(row []any) error {
		return func(row []any) error {
			if id, ok := number(row[0]); ok && len(to) < maxRocNames {
				to[id] = or(row[1], 0)
			}
			return nil
		}
	}
	if err := r.each(ctx, "rocpd_info_node", []string{"hostname"}, func(row []any) error {
		m.Host = cmp.Or(word(row[0]), m.Host)
		return nil
	}); err != nil {
		return err
	}
	if err := r.each(ctx, "rocpd_info_process", []string{"id", "pid", "environment"}, func(row []any) error {
		var variables map[string]string
		if json.Unmarshal([]byte(word(row[2])), &variables) == nil && len(variables) <= maxVariables {
			r.c.variables = variables
		}
		return numbers(r.pids)(row)
	}); err != nil {
		return err
	}
	if err := r.each(ctx, "rocpd_info_thread", []string{"id", "tid"}, numbers(r.threads)); err != nil {
		return err
	}
	if err := r.each(ctx, "rocpd_info_agent", []string{"id", "type", "type_index", "product_name", "name", "extdata"},
		func(row []any) error {
			id, ok := number(row[0])
			if !ok {
				return nil
			}
			var more struct {
				Units int64 `json:"cu_count"`
			}
			_ = json.Unmarshal([]byte(word(row[5])), &more) // unknown if it has another form
			r.known.Agent(m, id, or(row[2], 0), word(row[1]) == "GPU", word(row[4]), word(row[3]), more.Units)
			return nil
		}); err != nil {
		return err
	}
	return r.each(ctx, "rocpd_info_kernel_symbol",
		[]string{"id", "display_name", "kernel_name", "arch_vgpr_count", "accum_vgpr_count", "sgpr_count"},
		func(row []any) error {
			if id, ok := number(row[0]); ok {
				r.known.Kernel(id, cmp.Or(word(row[1]), word(row[2])),
					event.RocKernel{Vectors: or(row[3], 0), Accumulators: or(row[4], 0), Scalars: or(row[5], 0)})
			}
			return nil
		})
}

// event sets what rows of all kinds have in common: row begins with start, end, pid, event_id,
// stream_id, queue_id.
func (r *rocpd) event(e *event.Event, row []any) (ok bool, err error) {
	r.c.rows++
	if !r.c.times(e, row[0], row[1]) {
		return false, nil
	}
	e.Process = r.pids[or(row[2], 0)]
	e.Stream = r.c.p.Stream(or(row[4], 0), or(row[5], 0))
	stack, err := r.of(row[3], "stack_id")
	e.Correlation = correlation(or(stack, 0), e.Process)
	return true, err
}

var rocColumns = []string{"start", "end", "pid", "event_id", "stream_id", "queue_id"}

// of returns a column of the event with an id.
func (r *rocpd) of(event any, column string) (any, error) {
	table := r.c.db.Tables["rocpd_event"+r.run]
	id, ok := number(event)
	if !ok || table == nil {
		return nil, nil
	}
	return table.Find("id", id, column)
}

// on assigns an activity to the first of some agents that is a GPU.
func (r *rocpd) on(e *event.Event, agents ...any) bool {
	for _, v := range agents {
		if id, ok := number(v); ok && r.known.On(e, id) {
			e.HasProcess = true
			r.c.uses(e.Process)
			return true
		}
	}
	r.c.p.Skip("activity of an agent that is not a listed GPU")
	return false
}

func (r *rocpd) dispatches(ctx context.Context) error {
	return r.each(ctx, rocDispatch, slices.Concat(rocColumns, []string{
		"agent_id", "kernel_id",
		"workgroup_size_x", "workgroup_size_y", "workgroup_size_z", "grid_size_x", "grid_size_y", "grid_size_z",
		"group_segment_size",
	}),
		func(row []any) error {
			e := event.Event{Kind: event.KindKernel}
			if ok, err := r.event(&e, row); !ok || err != nil {
				return err
			}
			more := row[len(rocColumns):]
			if !r.on(&e, more[0]) {
				return nil
			}
			three := func(at int) [3]int64 { return [3]int64{or(more[at], 0), or(more[at+1], 0), or(more[at+2], 0)} }
			return r.c.add(&e, r.known.Launch(&e.Detail, or(more[0], 0), or(more[1], 0), three(2), three(5), or(more[8], 0)))
		})
}

func (r *rocpd) copies(ctx context.Context) error {
	return r.each(ctx, "rocpd_memory_copy",
		slices.Concat(rocColumns, []string{"dst_agent_id", "src_agent_id", "size", "name_id"}),
		func(row []any) error {
			e := event.Event{Kind: event.KindCopy}
			if ok, err := r.event(&e, row); !ok || err != nil {
				return err
			}
			more := row[len(rocColumns):]
			if !r.on(&e, more[0], more[1]) {
				return nil
			}
			e.Detail.Bytes, e.Detail.HasBytes = number(more[2])
			text, err := r.c.first(more[3:4], "")
			if err != nil {
				return err
			}
			name := vocabulary.RocCopy(text)
			e.Detail.Direction, _ = vocabulary.CopyKind(name)
			return r.c.add(&e, name)
		})
}

// regions reads calls of HIP and ranges of roctx, whose texts are in the event.
func (r *rocpd) regions(ctx context.Context) error {
	return r.each(ctx, "rocpd_region", slices.Concat(rocColumns, []string{"tid", "name_id"}),
		func(row []any) error {
			category, err := r.of(row[3], "category_id")
			if err != nil {
				return err
			}
			kind, err := r.c.first([]any{category}, "")
			if err != nil {
				return err
			}
			e := event.Event{Kind: event.KindRuntime}
			marker := strings.HasPrefix(kind, "MARKER")
			switch {
			case marker:
				e.Kind = event.KindAnnotation
			case !strings.HasPrefix(kind, "HIP"):
				return nil
			}
			if ok, err := r.event(&e, row); !ok || err != nil {
				return err
			}
			more := row[len(rocColumns):]
			e.Thread, e.Stream = r.threads[or(more[0], 0)], 0
			name, err := r.c.first(more[1:2], "call")
			if err != nil {
				return err
			}
			if marker {
				text, err := r.of(row[3], "extdata")
				if err != nil {
					return err
				}
				var about struct{ Message string }
				if json.Unmarshal([]byte(word(text)), &about) == nil && about.Message != "" {
					name = about.Message
				}
				e.Correlation, name = 0, rangeOf(&e, name)
			}
			return r.c.add(&e, name)
		})
}
