// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpuspanyaml reads gpuspan's settings from YAML, usually three nodes of a trainer's own configuration file:
//
//	model: …                 # the trainer's; ignored
//	timing:                  # settings of package gpuspan, without report and schedule
//	  verbosity: verbose
//	  sync: deferred
//	  memory_usage: true
//	nvtx:                    # range annotations, package gpuspan/nvtx
//	  enabled: true
//	  domain: trainer
//	profiling:               # which steps are recorded, and what is written
//	  schedule: {skip_first: 50, warmup: 1, active: 3, every: 10}
//	  report: true
//	  print_report: true
//	  trace_dir: /tmp/traces # for package gpuspan/chrometrace
//	  step_csv: steps.csv    # for package gpuspan/stepcsv
//
// [Load] and [Read] take the name of another node that the three stand below. `nvtx: true` is `nvtx: {enabled: true}`;
// `timing: false`, `profiling: false` and `profiling: null` switch profiling off.
//
// Keys that guides of PyTorch's profiler use are taken below `profiling`, too:
//
//	wait, warmup, active, repeat, skip_first  →  profiling.schedule.<same name>
//	enabled                                   →  timing.enabled
//	profile_memory                            →  timing.memory_usage
//	with_stack                                →  timing.code_location
//	output_dir                                →  profiling.trace_dir
//	record_shapes, with_flops, with_modules, activities: an error that says what stands for them
//
// Other nodes and values that are missing or null keep the defaults; other nodes of the file, and further documents in
// it, are not looked at. Within the three nodes every unknown key, every key that stands twice, every value of the
// wrong kind and every impossible combination is an error that names it, all of them at once.
package gpuspanyaml
