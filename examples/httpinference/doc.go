// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command httpinference is an HTTP service that answers requests on a GPU by continuous batching, instrumented with
// otelhttp and gpuspan:
//
//	POST /generate ─► handler (span of otelhttp) ─► queue ─► engine: one iteration after the other
//
//	iteration  admit who waits ─► h2d, prefill of the new ones ─► decode, one token for each that is active ─► d2h
//
// An iteration is one trace of GPU sections; prefill, decode and the copies link to the requests that they served, each
// with its tokens. Behind the Collector's connector gpu_requests each request's own trace then has a span for the
// queue, for prefill and for decode, with GPU time, tokens and joules. Try it:
//
//	go run ./httpinference -requests 40   # sends requests to itself, prints the largest iteration's links and the report
//	go run ./httpinference -listen localhost:8080 -otlp http://localhost:4317
package main
