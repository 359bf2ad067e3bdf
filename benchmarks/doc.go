// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package benchmarks runs our components side by side with their peers, in one process and one run, so that the ratios do not
// depend on the machine. It is a module of its own, outside of go.work: the peers' dependencies stay here.
//
//	GOWORK=off go test -run '^$' -bench . -benchmem -count 5 | go tool -modfile=../internal/tools/go.mod benchstat -col /by -
package benchmarks
