// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package page holds what people look at: a model of recent GPU work in bounded memory, the page that shows it live,
// and the same page as one file.
//
//	spans, metrics ──► Model ──► State (JSON) ──┬─► Handler: /, /api/state, /api/events   live
//	                                            └─► Report: one HTML file, no network
//
// The page's scripts and styles are in assets, without any library: six views, drawn as SVG, each under the question
// that it answers. No text from the wire reaches HTML but as text.
package page
