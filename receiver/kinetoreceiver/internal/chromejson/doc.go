// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package chromejson reads the JSON object or array form of Chrome traces as a stream, in one pass
// over a window of fixed size.
//
// It knows the fields of a trace event and nothing of their meaning. Values are slices of the
// window, valid during the call that hands them over. Where the program has two processors or more,
// a goroutine scans the next window while the events of the last one are used: a batch holds where
// their values are, and three windows go round. Times are read as exact decimals of microseconds
// into integer nanoseconds.
//
//	file, gunzip ──► window ──► event: fields at known keys, one pass ──► Handler.Event
//	                  │           (truncated by the window's end: shift, fill, begin the event again)
//	                  └──► other keys of the top level ──► Handler.Meta
//
// Writers lay objects of a kind out alike. A Layout remembers the text between values, so that the
// keys of the next object, and the values that seldom change, are compared in one piece and not
// read.
//
// # Why not a JSON library
//
// docs/adr/0052-read-chrome-traces-with-our-own-scanner.md compares it with others. Profiler files
// are gigabytes of objects with a dozen known keys, of which most values are skipped; skipping
// processes eight bytes at a time, or more. The price is that skipped values are checked for
// balanced brackets and terminated strings only: numbers, literals and the order of what is
// balanced are not.
package chromejson
