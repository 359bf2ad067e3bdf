// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/gzip"
	"go.opentelemetry.io/collector/consumer"

	"github.com/otelgpu/otelgpu/internal/profilefile"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/regularfile"
)

// Options configures [ReadFile]. The zero value is usable. Package kinetoreceiver names the levels of
// detail and the extents.
type Options = profiletrace.Options

const (
	scopeName      = "github.com/otelgpu/otelgpu/receiver/xplanereceiver"
	defaultService = "jax"
)

// Stats is the result of reading a file. Records are its events.
type Stats = profiletrace.Stats

// ReadFile reads one XPlane profile, plain or gzip, and passes its spans to emit in batches, which
// emit owns. Nothing is emitted before the whole file has been read, so a rejected file
// (ErrNotXSpace, ErrTruncated, ErrBroken; the error names the file) emits nothing. An error of emit
// stops reading and is returned.
func ReadFile(ctx context.Context, path string, o Options, emit consumer.ConsumeTracesFunc) (Stats, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return Stats{}, fmt.Errorf("cannot read XPlane profile %q: %w", path, err)
	}
	defer f.Close()
	return ReadOpened(ctx, f, o, emit)
}

// ReadOpened is like ReadFile, for an open file.
func ReadOpened(ctx context.Context, f *os.File, o Options, emit consumer.ConsumeTracesFunc) (Stats, error) {
	st, err := read(ctx, f, o, emit)
	if err != nil {
		return st, fmt.Errorf("cannot read XPlane profile %q: %w", f.Name(), err)
	}
	return st, nil
}

func read(ctx context.Context, f *os.File, o Options, emit consumer.ConsumeTracesFunc) (Stats, error) {
	p := profiletrace.New(o, profiletrace.Source{Scope: scopeName, Root: "jax profile", Service: defaultService})
	defer p.Close()
	x := &space{}
	c := &collect{p: p, space: x, divided: map[uint32]bool{}, unknown: described{name: "unknown"}}
	c.nesting.add = p.Add
	err := from(ctx, f, x.tables)
	if err == nil && !slices.ContainsFunc(x.planes, func(p *plane) bool { return p.name != "" }) {
		err = fmt.Errorf("%w: it has no planes", ErrNotXSpace)
	}
	if err == nil {
		err = c.describe()
		c.host(f.Name())
	}
	if err == nil {
		err = from(ctx, f, func(w *wire) error { return x.events(w, c.event) })
	}
	if err == nil {
		err = c.nesting.flush()
	}
	p.Paths = p.Paths && p.Count(event.KindRuntime) > 0 // without calls that launch there is no path from host to device
	if err != nil {
		return Stats{Records: c.events}, err
	}
	st, err := p.Emit(ctx, emit)
	st.Records = c.events
	return st, err
}

// host sets the rank of a file that is one of several hosts': a run has a folder, with a file for
// each host, and no file states which host it is of. The rank is the file's position by name.
func (c *collect) host(path string) {
	dir := filepath.Dir(path)
	plain, _ := filepath.Glob(filepath.Join(dir, "*.xplane.pb"))
	packed, _ := filepath.Glob(filepath.Join(dir, "*.xplane.pb.gz"))
	all := slices.Concat(plain, packed)
	slices.Sort(all)
	at := slices.Index(all, filepath.Clean(path))
	if at < 0 || len(all) < 2 {
		return
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	m := &c.p.Meta
	m.Rank, m.HasRank, m.WorldSize, m.JobID = int64(at), true, int64(len(all)), filepath.ToSlash(dir)
}

// from reads the file from its start.
func from(ctx context.Context, f *os.File, read func(*wire) error) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	const size = 1 << 16
	b := bufio.NewReaderSize(profilefile.WithContext(ctx, f), size)
	head, err := b.Peek(2)
	switch {
	case len(head) == 0 && errors.Is(err, io.EOF):
		return fmt.Errorf("%w: it is empty", ErrNotXSpace)
	case string(head) == "\x1f\x8b":
		z, err := gzip.NewReader(b)
		if err != nil {
			return fmt.Errorf("broken gzip data: %w", err)
		}
		defer z.Close()
		packed, err := f.Stat()
		if err != nil {
			return err
		}
		b = bufio.NewReaderSize(&inflated{z, max(leastInflated, maxInflation*packed.Size())}, size)
	}
	return read(&wire{r: b})
}

// Limits of what a compressed file may expand to: events differ in their times, so that profiles
// compress to a tenth. Smaller files are not judged.
const (
	maxInflation  = 200
	leastInflated = 16 << 20 // bytes
)

// inflated reads decompressed data up to a limit.
type inflated struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (i *inflated) Read(b []byte) (int, error) {
	n, err := i.r.Read(b)
	if i.left -= int64(n); i.left < 0 {
		return 0, fmt.Errorf("%w: the gzip data expands to more than %d times its size "+
			"(if it is a profile, decompress it first)", ErrBroken, maxInflation)
	}
	return n, err
}
