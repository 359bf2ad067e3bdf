// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"cmp"
	"container/list"
)

// operation identifies what a usage record is for.
type operation struct{ name, category, itemType, model string }

// account is the usage record of one request and operation.
type account struct {
	op     *operation
	source *source // of its batches

	batches  int64
	sizes    float64 // sum over batches
	time     float64 // share × time on the device, s
	energy   float64 // J
	items    float64
	covered  float64 // part of time to which the energy belongs, s
	measured bool    // energy is stated
	upper    bool    // energy is an upper bound
	linked   bool    // some work arrived by a link: the request's own trace does not show it

	start, end     uint64 // first GPU start, last GPU end, unix ns
	firstItems     uint64 // end of the first batch with items of the request; 0: none
	first, slowest example
	device         string // "" if there are several
	last           key    // of the last batch, because two links of it may refer to the request
}

// example is a batch to which the usage record's span links.
type example struct {
	key
	link  int // of the batch's links, the first to the request
	start uint64
	time  float64
}

// request is an open request: its own span as far as it is known, and a usage record for each
// operation.
type request struct {
	key
	accounts   []account
	seen       int64 // when the last contribution arrived
	begun      bool  // its own span has arrived
	start      uint64
	own        int64 // when its own span arrived
	model      string
	dimensions []string // values, by Config.Dimensions; empty: unknown
	late       bool     // a usage record of it was closed already

	queue, firstItem, prefill, decode float64 // as stated by the engine, s

	unsampled bool
	flags     uint32
	state     string

	at *list.Element
}

// energy returns the energy of a request, J.
func (r *request) energy() (sum float64) {
	for i := range r.accounts {
		sum += r.accounts[i].energy
	}
	return sum
}

// begin sets the request's own span.
func (r *request) begin(s *seenSpan, now int64) {
	if s == nil || r.begun || s.start == 0 {
		return
	}
	r.begun, r.own, r.start = true, now, s.start
	r.queue, r.firstItem, r.prefill, r.decode = s.queue, s.firstItem, s.prefill, s.decode
	r.model = cmp.Or(s.model, r.model)
}

// Flags of links (opentelemetry/proto/trace/v1, SpanFlags; W3C trace flags in the low byte).
const (
	sampled     = 0x01
	traceFlags  = 0xff
	knownParent = 0x100
)

// times extends the usage record by the times of a span and keeps the first and the slowest span.
// link is the index of the span's first link to the request.
func (a *account) times(s *span, link int) {
	if a.start == 0 || s.start < a.start {
		a.start = s.start
	}
	a.end = max(a.end, s.end)
	x := example{s.key, link, s.start, s.time}
	if a.batches == 1 {
		a.first, a.slowest, a.device = x, x, s.device
		return
	}
	if x.start < a.first.start || x.start == a.first.start && less(x.key, a.first.key) {
		a.first = x
	}
	if x.time > a.slowest.time {
		a.slowest = x
	}
	if a.device != s.device {
		a.device = ""
	}
}

// add adds the request's part of a span.
func (a *account) add(s *span, items, time, energy float64) {
	if items > 0 && (a.firstItems == 0 || s.end < a.firstItems) {
		a.firstItems = s.end
	}
	a.items += items
	a.time += time
	if s.energy > 0 {
		a.measured = true
		a.upper = a.upper || s.upper
		a.energy += energy
		a.covered += time * s.coverage
	}
}

// maxAccounts is the maximum number of usage records per request; further operations share one
// more, named otherName. Operation names that contain a number would otherwise create a usage
// record for each batch.
const (
	maxAccounts = 64
	otherName   = "other"
)

// account returns the request's usage record for an operation, and creates it if necessary.
func (b *book) account(r *request, op *operation, s *source) *account {
	for i := range r.accounts {
		if a := &r.accounts[i]; (a.op == op || *a.op == *op) && a.source.id == s.id {
			return a
		}
	}
	if len(r.accounts) >= maxAccounts {
		b.stats.lostOperations++
		if len(r.accounts) > maxAccounts {
			return &r.accounts[maxAccounts]
		}
		op = b.operation(operation{name: otherName})
	}
	r.accounts = append(r.accounts, account{op: op, source: s})
	return &r.accounts[len(r.accounts)-1]
}
