// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"math"

	"go.opentelemetry.io/collector/consumer"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Options control how a profile is read, by receivers of profile files and by their ReadFile
// functions. The zero value is usable.
type Options struct {
	// Detail is how much of a file becomes spans: auto (default), steps, annotations, operators,
	// kernels.
	Detail emit.Level `mapstructure:"detail" enum:"auto,steps,annotations,operators,kernels"`
	// Attributes selects how much is written on spans: lean (default) omits a kernel's launch
	// configuration, which its occupancy summarizes; full writes everything.
	Attributes spanfacts.Level `mapstructure:"attributes" enum:"lean,full"`
	// Extent selects the activities that the analysis of a window covers: all (default), steps,
	// steps_but_last.
	Extent link.Extent `mapstructure:"extent" enum:"all,steps,steps_but_last"`
	// MaxSpans is the maximum number of spans of a trace, at least 100. 0 (default): 2,000, or no
	// limit if Detail is operators or kernels. Negative: no limit.
	MaxSpans int `mapstructure:"max_spans"`
	// MaxBytes is the maximum size of a trace in bytes of OTLP, at least 200,000. 0 (default):
	// 2,000,000, or no limit if Detail is operators or kernels. Negative: no limit.
	MaxBytes int `mapstructure:"max_bytes"`
	// MaxEvents is the maximum number of events of one file (default 10,000,000; 0 and negative: no
	// limit). A file with more is rejected: a few compressed megabytes may expand to any number.
	MaxEvents int `mapstructure:"max_events"`
	// BatchSpans is the maximum number of spans of one batch (default 1000).
	BatchSpans int `mapstructure:"batch_spans"`
	// MemoryMiB is the memory for the events of a file in MiB; further events go to a temporary
	// file (default 32).
	MemoryMiB float64 `mapstructure:"memory_limit_mib"`
	// TempDir is the folder of that file (default: the operating system's).
	TempDir string `mapstructure:"temp_dir"`
	// ServiceName is service.name if the file does not state one (default: the receiver's).
	ServiceName string `mapstructure:"service_name"`
	// JobID is gpu.job.id if the file does not state one (default none); it makes links across
	// ranks possible.
	JobID string `mapstructure:"job_id"`
	// Device is hw.model of devices that the file does not name, as reported by the driver (default
	// none: no peak is known then).
	Device string `mapstructure:"device"`
	// Resource holds further resource attributes; they override the file's (default none).
	Resource map[string]string `mapstructure:"resource"`

	// Partial reads the intact beginning of a truncated text file; without it, such a file is
	// rejected.
	Partial bool `mapstructure:"-"`
	// Captures are patterns of paths of PyTorch traces in which graphs were captured that the files
	// launch.
	Captures []string `mapstructure:"-"`
	// Cache keeps the captures found there for the next file (default: each file reads them again).
	Cache *link.CaptureCache `mapstructure:"-"`
	// Paths finds the critical paths of steps.
	Paths bool `mapstructure:"-"`
	// Shapes writes gpu.operation.shapes on operators.
	Shapes bool `mapstructure:"-"`
	// Accept is called with the identity of a profile before anything is written. Its error rejects
	// the profile, and is returned (default none).
	Accept func(event.Identity) error `mapstructure:"-"`
	// All also gets every activity as spans, as with LevelKernels (default none). Both are written
	// from one reading of the file.
	All consumer.ConsumeTracesFunc `mapstructure:"-"`
	// Observe returns an observer of the profile (default none). The results of a profile without
	// an observer are the same.
	Observe func(*link.Input) link.Observer `mapstructure:"-"`
	// Version is the version of the reading program, used for the instrumentation scope (default:
	// none).
	Version string `mapstructure:"-"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// Defaults.
const (
	defaultMaxSpans = 2000
	defaultMaxBytes = 2_000_000
	defaultEvents   = 10_000_000
	defaultBatch    = 1000
	defaultMemory   = 32 // MiB
	mebi            = 1 << 20
)

// DefaultOptions returns the defaults of a configuration, for spans of a service that the file does
// not name.
func DefaultOptions(service string) Options {
	return Options{MaxEvents: defaultEvents, BatchSpans: defaultBatch, MemoryMiB: defaultMemory, ServiceName: service}
}

// MemoryLimit returns MemoryMiB in bytes.
func (o *Options) MemoryLimit() int {
	if o.MemoryMiB <= 0 {
		return defaultMemory * mebi
	}
	return int(o.MemoryMiB * mebi)
}

func limit(v, standard int, l emit.Level) int {
	switch {
	case v > 0:
		return v
	case v < 0 || l.PerStep():
		return math.MaxInt
	}
	return standard
}

// The least limits: a trace always holds its window, its devices and some steps.
const (
	minSpans = 100
	minBytes = 200_000
)

// Check reports every problem of a configuration. It is not called Validate, because the path of
// its error would name a Go field that no configuration has.
func (o *Options) Check() error {
	var bad configvalidate.List
	bad.If(o.BatchSpans <= 0, "`batch_spans` must be positive, found %d", o.BatchSpans)
	bad.If(!(o.MemoryMiB >= 1 && o.MemoryMiB < 2048), "`memory_limit_mib` must be from 1 to 2047, found %v", o.MemoryMiB)
	least := func(key string, v, least int) {
		bad.If(v > 0 && v < least, "`%s` must be at least %d, or 0 for the default, or negative for none, found %d", key,
			least, v)
	}
	least("max_spans", o.MaxSpans, minSpans)
	least("max_bytes", o.MaxBytes, minBytes)
	bad.If(o.ServiceName == "", "`service_name` must not be empty")
	return bad.Err()
}

// emitConfig returns the options that concern spans of a level.
func (p *Profile) emitConfig(level emit.Level) emit.Config {
	o := &p.opts
	return emit.Config{
		Detail: level, Attributes: o.Attributes, MaxSpans: limit(o.MaxSpans, defaultMaxSpans, level),
		MaxBytes:   limit(o.MaxBytes, defaultMaxBytes, level),
		BatchSpans: o.BatchSpans, Resource: o.Resource, Shapes: o.Shapes, Scope: p.source.Scope, Version: o.Version,
	}
}
