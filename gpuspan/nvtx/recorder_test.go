// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx_test

import (
	"testing"

	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
)

// recorder is an NVTX injection library that records its calls.
type recorder struct {
	Path string

	count              func() int64
	kind, domain, text func(int64) string
	category, color    func(int64) uint32
	payloadType        func(int64) int32
	payload, id        func(int64) uint64
	thread             func(int64) int64
	ok                 func() int32
	version, tables    func() uint32
	quiet, clear       func()
}

// call is one call that the tool received.
type call struct {
	Kind            string // domain, string, category, mark, start, end, push, pop
	Domain, Text    string
	Category, Color uint32
	PayloadType     int32
	Payload, ID     uint64
	Thread          int64 // the OS thread
}

// newRecorder builds a recorder. With -DREFUSE it refuses to be attached, with -DNO_DOMAINS it
// rejects domains.
func newRecorder(t testing.TB, flags ...string) *recorder {
	t.Helper()
	r := &recorder{}
	path, register := ctest.Load(t, "nvtx.c", flags...)
	r.Path = path
	for name, f := range map[string]any{
		"rec_count": &r.count, "rec_kind": &r.kind, "rec_domain": &r.domain, "rec_text": &r.text, "rec_category": &r.category,
		"rec_color": &r.color, "rec_payload_type": &r.payloadType, "rec_payload": &r.payload, "rec_id": &r.id,
		"rec_thread": &r.thread, "rec_attributes_ok": &r.ok, "rec_version": &r.version, "rec_tables": &r.tables,
		"rec_quiet": &r.quiet, "rec_clear": &r.clear,
	} {
		register(f, name)
	}
	return r
}

// Events returns the calls so far.
func (r *recorder) Events() []call {
	out := make([]call, r.count())
	for i := range out {
		n := int64(i)
		out[i] = call{
			Kind: r.kind(n), Domain: r.domain(n), Text: r.text(n), Category: r.category(n), Color: r.color(n),
			PayloadType: r.payloadType(n), Payload: r.payload(n), ID: r.id(n), Thread: r.thread(n),
		}
	}
	return out
}

// Clear discards the calls so far.
func (r *recorder) Clear() { r.clear() }

// WellFormed reports whether every attribute structure had the right version, size and
// registration.
func (r *recorder) WellFormed() bool { return r.ok() != 0 }

// Version returns the NVTX version of the application.
func (r *recorder) Version() uint32 { return r.version() }

// Tables returns the sizes of the function tables of modules CORE and CORE2.
func (r *recorder) Tables() (core, core2 uint32) { n := r.tables(); return n >> 16, n & 0xffff }

// Quiet replaces the range functions with no-ops.
func (r *recorder) Quiet() { r.quiet() }
