// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package benchmarks runs our components side by side with their peers, in one process and one run,
// so that the ratios do not depend on the machine. It is a separate module, outside of go.work: the
// peers' dependencies stay here.
//
//	GOWORK=off go test -run '^$' -bench 'Derive|Metrics|OTLPInToOut' -benchmem -benchtime 300x -count 5 | tee new.txt
//	go tool -modfile=../internal/tools/go.mod benchstat -col /by new.txt
//
// TestCostOfAPipeline and TestCostOverTheNetwork measure whole pipelines by the processor time of
// the process:
//
//	GOWORK=off go test -run Cost -v -cost 3
//
// cpu-ns/span is the processor time of the benchmark's own thread, which other programs on the
// machine do not change.
package benchmarks
