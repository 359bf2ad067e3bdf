// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ncclinspector

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// Process is the operating system process that wrote a line.
type Process struct {
	Host string
	PID  int64 // in the namespace of its container
}

// CommID identifies a communicator: its hash, which other jobs may have by chance, and its size.
type CommID struct {
	Hash  string // as in the file: 0x...
	Ranks int
}

// Source is what all lines of one rank about one operation of a communicator have in common.
type Source struct {
	Comm      CommID
	CommName  string // empty: not stated
	Nodes     int    // 0: not stated
	Rank      int    // in the communicator
	Process   Process
	Operation string // as semconv names it: all_reduce
	Peer      int    // rank in the communicator; -1: the operation is no transfer between two ranks
	Device    bool   // the time is measured on the device, and not by the host

	stream *stream // in the job that took it
}

// Record is a line.
type Record struct {
	*Source         // nil: the line is about no operation
	Sequence uint64 // in the communicator and operation; the two ends of a transfer count differently
	Bytes    uint64 // of one rank
	Micros   uint64 // how long the operation's kernel ran, in µs
	Written  uint64 // when the line was written, in µs since 1970, which may be long after the operation
}

// origin says who wrote a line.
type origin struct {
	Header struct {
		ID    string `json:"id"`
		Name  string `json:"comm_name"`
		Rank  int    `json:"rank"`
		Ranks int    `json:"n_ranks"`
		Nodes int    `json:"nnodes"`
	} `json:"header"`
	Metadata struct {
		Written uint64 `json:"dump_timestamp_us"`
		Host    string `json:"hostname"`
		PID     int64  `json:"pid"`
	} `json:"metadata"`
}

// line is the part of a line that is used.
type line struct {
	origin
	Collective *operation      `json:"coll_perf"`
	Transfer   *operation      `json:"p2p_perf"`
	Proxy      json.RawMessage `json:"proxy_trace"`
	// Since version 4.1 of the format, such a line precedes the lines that a communicator writes at a
	// time. Since 4.3 it alone has their origin.
	Batch *struct {
		Collectives uint32 `json:"coll_records"`
		Transfers   uint32 `json:"p2p_records"`
		Proxies     uint32 `json:"proxy_records"`
	} `json:"dump_stats"`
}

type operation struct {
	Name     string  `json:"coll"`
	Sequence *uint64 `json:"coll_sn"`
	Bytes    *uint64 `json:"coll_msg_size_bytes"`
	Micros   *uint64 `json:"coll_exec_time_us"`
	Timing   string  `json:"coll_timing_source"`
	Peer     int     `json:"-"`
}

// UnmarshalJSON reads the fields of collectives and, under other names, of transfers.
func (o *operation) UnmarshalJSON(b []byte) error {
	type collective operation
	var p2p struct {
		Name     string  `json:"p2p"`
		Sequence *uint64 `json:"p2p_sn"`
		Peer     int     `json:"p2p_peer"`
		Bytes    *uint64 `json:"p2p_msg_size_bytes"`
		Micros   *uint64 `json:"p2p_exec_time_us"`
		Timing   string  `json:"p2p_timing_source"`
	}
	if err := json.Unmarshal(b, (*collective)(o)); err != nil {
		return err
	}
	o.Peer = -1
	if o.Name != "" {
		return nil
	}
	if err := json.Unmarshal(b, &p2p); err != nil {
		return err
	}
	*o = operation{p2p.Name, p2p.Sequence, p2p.Bytes, p2p.Micros, p2p.Timing, p2p.Peer}
	return nil
}

// Errors of [Parser.Parse].
var (
	errNoOperation = errors.New("no operation with a number, size and time")
	errRank        = errors.New("rank outside of its communicator")
	errTooLarge    = errors.New("number out of range")
	// ErrNoBatch is the error of a line without an origin, as the first lines have after the beginning
	// of a file is lost.
	ErrNoBatch = errors.New("no communicator, and no line with dump_stats before it that names one")
)

// Limits of what a line may state.
const (
	maxRanks  = 1 << 20
	maxMicros = 1 << 40 // 12 days
	maxForms  = 256     // of one parser: communicators times operations
	maxText   = 256     // bytes of a name
)

// Parser reads the lines of one file. The zero value is ready. Most lines of a file differ from an
// earlier one in four numbers only, so that their text is compared instead of decoded.
type Parser struct {
	forms []*form
	last  *form

	batches []*origin // without the time of writing
	batch   *origin
	written uint64 // when the batch was written
	left    uint64 // lines of the batch that were not read
}

// form is the text of a line around its numbers, in the order of the file: time of writing,
// sequence, bytes, time.
type form struct {
	parts  [4]string
	after  string  // the last number
	batch  *origin // nil: the line has its origin; otherwise it has no time of writing, either
	source *Source
	next   *form // that followed this form last time
}

// Parse reads a line without its end.
func (p *Parser) Parse(text []byte) (Record, error) {
	if p.last != nil && p.last.next != nil {
		if r, ok := p.match(p.last.next, text); ok {
			p.last = p.last.next
			return r, nil
		}
	}
	for _, f := range p.forms {
		if r, ok := p.match(f, text); ok {
			if p.last != nil {
				p.last.next = f
			}
			p.last = f
			return r, nil
		}
	}
	left := p.left
	r, err := p.decode(text)
	if err == nil && r.Source != nil && len(p.forms) < maxForms {
		var batch *origin
		if p.left < left {
			batch = p.batch
		}
		if f := formOf(text, r, batch); f != nil {
			p.forms = append(p.forms, f)
		}
	}
	return r, err
}

func (p *Parser) match(f *form, text []byte) (Record, bool) {
	if f.batch != nil && (f.batch != p.batch || p.left == 0) {
		return Record{}, false
	}
	r, ok := f.parse(text)
	if ok && f.batch != nil {
		r.Written = p.written
		p.left--
	}
	return r, ok
}

func (f *form) parse(text []byte) (Record, bool) {
	var values [4]uint64
	for i, part := range f.parts {
		if i == 0 && f.batch != nil {
			continue
		}
		if len(text) < len(part) || string(text[:len(part)]) != part {
			return Record{}, false
		}
		text = text[len(part):]
		n, digits := uint64(0), 0
		for digits < len(text) && text[digits]-'0' <= 9 {
			n = n*10 + uint64(text[digits]-'0')
			digits++
		}
		if digits == 0 || digits > 18 {
			return Record{}, false
		}
		values[i], text = n, text[digits:]
	}
	if len(text) < len(f.after) || string(text[:len(f.after)]) != f.after || !bytes.HasSuffix(text, []byte("}}")) ||
		values[3] > maxMicros {
		return Record{}, false
	}
	return Record{f.source, values[1], values[2], values[3], values[0]}, true
}

// formOf returns the form of a line that was decoded, nil if its fields are in another order or
// spaces are between them.
func formOf(text []byte, r Record, batch *origin) *form {
	prefix := "coll"
	if r.Peer >= 0 {
		prefix = "p2p"
	}
	f := &form{source: r.Source, batch: batch}
	if batch != nil {
		r.Written = 0
	}
	rest := string(text)
	for i, key := range []string{
		`"dump_timestamp_us":`, `"` + prefix + `_sn":`, `"` + prefix + `_msg_size_bytes":`, `"` + prefix + `_exec_time_us":`,
	} {
		if i == 0 && batch != nil {
			continue
		}
		at := strings.Index(rest, key)
		if at < 0 || strings.Count(rest, key) > 1 {
			return nil
		}
		at += len(key)
		f.parts[i], rest = rest[:at], strings.TrimLeft(rest[at:], "0123456789")
	}
	at := strings.Index(rest, `_algobw_gbs":`)
	if at < 0 {
		return nil
	}
	f.after = rest[:at]
	if again, ok := f.parse(text); !ok || again != r {
		return nil
	}
	return f
}

// begin notes the origin of the lines that follow.
func (p *Parser) begin(o origin) {
	p.written, o.Metadata.Written = o.Metadata.Written, 0
	if i := slices.IndexFunc(p.batches, func(b *origin) bool { return *b == o }); i >= 0 {
		p.batch = p.batches[i]
		return
	}
	p.batch = &o
	if len(p.batches) < maxForms {
		p.batches = append(p.batches, p.batch)
	}
}

func (p *Parser) decode(text []byte) (Record, error) {
	var l line
	err := json.Unmarshal(text, &l)
	switch {
	case err == nil && l.Batch != nil:
		p.left = uint64(l.Batch.Collectives) + uint64(l.Batch.Transfers) + uint64(l.Batch.Proxies)
		p.begin(l.origin)
		return Record{}, nil
	case err == nil && l.Header.ID != "": // a line of an older version
	case p.left > 0:
		p.left--
		l.origin = *p.batch
		l.Metadata.Written = p.written
	case err == nil:
		return Record{}, ErrNoBatch
	}
	if err != nil {
		return Record{}, fmt.Errorf("not a line of NCCL Inspector: %w", err)
	}
	if l.Proxy != nil {
		return Record{}, nil
	}
	op := l.Collective
	if op == nil {
		op = l.Transfer
	}
	h := &l.Header
	switch {
	case op == nil || op.Name == "" || op.Sequence == nil || op.Bytes == nil || op.Micros == nil:
		return Record{}, errNoOperation
	case h.Ranks < 1 || h.Ranks > maxRanks || h.Rank < 0 || h.Rank >= h.Ranks:
		return Record{}, errRank
	case *op.Micros > maxMicros:
		return Record{}, errTooLarge
	}
	name := h.Name
	if name == "unknown" { // what Inspector writes if the communicator has no name
		name = ""
	}
	s := &Source{
		Comm: CommID{clip(h.ID), h.Ranks}, CommName: clip(name), Nodes: max(0, h.Nodes), Rank: h.Rank,
		Process:   Process{clip(l.Metadata.Host), l.Metadata.PID},
		Operation: cmp.Or(vocabulary.CollectiveName(op.Name), "other"), Peer: op.Peer, Device: op.Timing == "kernel_gpu",
	}
	return Record{s, *op.Sequence, *op.Bytes, *op.Micros, l.Metadata.Written}, nil
}

func clip(s string) string {
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), maxText)]), "")
}

// Name returns the communicator as reports name it.
func (s *Source) Name() string {
	if s.CommName != "" {
		return s.CommName + " (" + s.Comm.Hash + ")"
	}
	return s.Comm.Hash + " of " + strconv.Itoa(s.Comm.Ranks) + " ranks"
}

// Sniff reports whether a file begins with a line of Inspector.
func Sniff(head []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(head), []byte(`{`)) &&
		bytes.Contains(head, []byte(`"inspector_output_format_version"`))
}
