// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command training is a training loop instrumented with gpuspan: steps with phases, a schedule, a loader that is
// sometimes late, a report, a CSV with one row per recorded step, and a Chrome trace of each active window.
//
//	go run ./training -steps 120 -csv steps.csv -traces traces
//	go run ./training -config train.yaml
package main
