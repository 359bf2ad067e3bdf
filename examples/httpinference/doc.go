// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command httpinference is an HTTP service that answers requests in batches on a GPU, instrumented with otelhttp and gpuspan:
//
//	POST /generate ─► handler (span of otelhttp) ─► queue ─► batcher ─► one stream: h2d, prefill, decode, d2h
//
// Each batch is one trace of GPU sections that links to the requests it served, each with its share by tokens.
// Try it:
//
//	go run ./httpinference -requests 40   # sends requests to itself, prints a batch's links and the report
//	go run ./httpinference -listen localhost:8080 -otlp http://localhost:4317
package main
