// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profilefile"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/regularfile"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
)

// Detail selects the parts of a file that become spans. The zero value is [DetailAuto].
type Detail = emit.Level

// Levels of detail.
const (
	// steps, annotations, modules, collectives, copies and kernels that matter
	DetailAuto        = emit.LevelAuto
	DetailSteps       = emit.LevelSteps       // steps only
	DetailAnnotations = emit.LevelAnnotations // steps and user annotations
	DetailOperators   = emit.LevelOperators   // steps, annotations, modules and operators
	DetailKernels     = emit.LevelKernels     // also device activities and the calls that launched them
)

// Errors of [ReadFile] that callers can distinguish by errors.Is.
var (
	ErrNotTrace  = chromejson.ErrNotTrace  // another type of file, or an empty one
	ErrNoEvents  = chromejson.ErrNoEvents  // another type of JSON document; an ErrNotTrace
	ErrSyntax    = chromejson.ErrSyntax    // invalid JSON
	ErrTruncated = chromejson.ErrTruncated // the file ends within the trace

	// a Chrome trace of another profiler, whose device activities cannot be identified
	ErrForeign = errors.New("not a trace of PyTorch's profiler")
)

// Extent selects the activities that the analysis of a window covers. The zero value is
// [ExtentAll].
type Extent = link.Extent

// Extents. The last two match Holistic Trace Analysis with and without include_last_profiler_step.
const (
	ExtentAll          = link.ExtentAll          // every activity
	ExtentSteps        = link.ExtentSteps        // activities launched before the end of the last step
	ExtentStepsButLast = link.ExtentStepsButLast // activities launched before the last step began
)

// Options configures [ReadFile]. The zero value is usable.
type Options = profiletrace.Options

const (
	scopeName      = "github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	defaultService = "pytorch"
)

// Stats is the result of reading a file. Records are the elements of traceEvents, of every phase.
type Stats struct {
	profiletrace.Stats
	JSONBytes int64 // uncompressed size in bytes
	Partial   bool  // only the beginning could be read; Faults has the reason
}

// ReadFile reads one PyTorch profiler (Kineto) trace, or a run that rocprofv3 wrote as JSON, plain,
// gzip or zstd, and passes its spans to emit in batches, which emit owns. Nothing is emitted before
// the whole file has been read, so a rejected file (ErrNotTrace, ErrSyntax, ErrTruncated,
// ErrForeign; the error names the file) emits nothing. An error of emit stops reading and is
// returned.
func ReadFile(ctx context.Context, path string, o Options, emit func(context.Context, ptrace.Traces) error) (Stats,
	error,
) {
	f, err := regularfile.Open(path)
	if err != nil {
		return Stats{}, fmt.Errorf("cannot open trace file: %w", err)
	}
	defer f.Close()
	return ReadOpened(ctx, f, bufio.NewReaderSize(f, bufferSize), o, emit)
}

// bufferSize holds what decides whether a file can be read.
const bufferSize = 1 << 16

// ReadOpened is like ReadFile, for an open file whose content b reads from the start. The caller
// may have peeked at it through b.
func ReadOpened(ctx context.Context, f *os.File, b *bufio.Reader, o Options,
	emit func(context.Context, ptrace.Traces) error,
) (Stats, error) {
	path := f.Name()
	st, err := readNamed(ctx, path, b, o, emit)
	if err != nil {
		return st, fmt.Errorf("cannot read trace file %q: %w", path, err)
	}
	return st, nil
}

// Read is like ReadFile, for an open file.
func Read(ctx context.Context, r io.Reader, o Options, emit func(context.Context, ptrace.Traces) error) (Stats, error) {
	return readNamed(ctx, "", r, o, emit)
}

// recording is what PyTorch's profiler adds to the time of the launching thread: on two hosts
// (Xeon) with an H100 and an H200, 2.3 to 3.4 µs for each event in steps that the host limited, and
// 3 to 7 µs for a call alone. docs/hardware.md has the steps with and without it.
var recording = link.Recording{
	Operator: 2 * time.Microsecond, Call: 5 * time.Microsecond, Frame: time.Microsecond, Launch: 5 * time.Microsecond,
}

func readNamed(ctx context.Context, path string, r io.Reader, o Options,
	emit func(context.Context, ptrace.Traces) error,
) (Stats, error) {
	c := newCollect(o)
	defer func() { c.p.Close() }()
	st, err := c.read(ctx, path, r)
	if err != nil {
		return st, err
	}
	if c.several && path != "" {
		if ranks := numberedRanks(ctx, path); ranks != nil {
			c.p.Close()
			c = newCollect(o)
			c.number(ranks)
			if st, err = c.reread(ctx, path); err != nil {
				return st, err
			}
		}
	}
	if err := c.knowCaptures(ctx); err != nil {
		return st, err
	}
	records := st.Records
	st.Stats, err = c.p.Emit(ctx, emit)
	st.Records = records
	st.Faults = append(st.Faults, graphFaults(&st.Graphs)...)
	return st, err
}

func newCollect(o Options) *collect {
	p := profiletrace.New(o, profiletrace.Source{
		Scope: scopeName, Root: "pytorch profile", Service: defaultService, Recording: recording,
	})
	return &collect{p: p, shapes: o.Shapes, opts: o, texts: map[string]int64{}, ranks: mergedRanks{}}
}

func (c *collect) reread(ctx context.Context, path string) (Stats, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return Stats{}, err
	}
	defer f.Close()
	return c.read(ctx, path, f)
}

// read passes the events of a file to the profile.
func (c *collect) read(ctx context.Context, path string, r io.Reader) (Stats, error) {
	p := c.p
	b := bufio.NewReaderSize(r, bufferSize)
	if err := known(path, b); err != nil {
		return Stats{}, err
	}
	plain, done, err := Unpack(b)
	if err != nil {
		return Stats{}, err
	}
	defer done()
	whole := bufio.NewReader(profilefile.WithContext(ctx, plain))
	if plain != io.Reader(b) {
		if err := knownPacked(path, whole); err != nil {
			return Stats{}, compressed(err)
		}
	}
	head, _ := whole.Peek(profilefile.HeadSize) // the readers report what cannot be read
	head = slices.Clone(head)
	js, ofROCm, err := c.readROCm(whole)
	if !ofROCm {
		js, err = chromejson.Read(whole, c)
		err = c.refuse(path, head, err)
	}
	st := Stats{Stats: profiletrace.Stats{Records: js.Events}, JSONBytes: js.Bytes}
	partial := ""
	if err != nil {
		err = compressed(err)
		if !c.opts.Partial || js.Events == 0 || !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrSyntax) {
			return st, err
		}
		partial = err.Error()
		c.meta.faults = append(c.meta.faults, "only the beginning could be read: "+partial)
	}
	if js.NoEvents > 0 {
		p.Skipped["event that is not an object"] += js.NoEvents
	}
	if js.Broken > 0 {
		p.Skipped["event whose JSON is broken, as by quotes in a name"] += js.Broken
	}
	if js.Rest > 0 {
		c.meta.faults = append(c.meta.faults, fmt.Sprintf("what follows the end of the trace at byte %d was not read",
			js.Rest))
	}
	p.Meta = c.meta.result()
	ranks := c.ranks.settle(p.Store)
	if len(ranks) > 1 { // what the file states about a rank is of the first one
		p.Meta.HasRank, p.Meta.Rank, p.Meta.HasLocalRank = false, 0, false
		p.Meta.LocalRank, p.Meta.Ranks = 0, ranks
	}
	p.Meta.Partial, st.Partial = partial, partial != ""
	p.Faults = c.meta.faults
	return st, nil
}

// compressed describes errors of decompression.
func compressed(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the compressed data ends early", ErrTruncated)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return fmt.Errorf("broken gzip data: %w", err)
	}
	return err
}

const gzipMagic, zstdMagic = "\x1f\x8b", "\x28\xb5\x2f\xfd"

// Unpack returns a reader of the decompressed content if b begins with the magic number of gzip or
// zstd, otherwise of the unchanged content. Call the returned function when done. It returns an
// error if the header of the compressed content is invalid.
func Unpack(b *bufio.Reader) (io.Reader, func(), error) {
	head, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte(gzipMagic)):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, nil, compressed(err)
		}
		z.Multistream(false)
		return &gzipMembers{z, b}, func() { z.Close() }, nil
	case bytes.HasPrefix(head, []byte(zstdMagic)):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			return nil, nil, fmt.Errorf("broken zstd data: %w", err)
		}
		return z, z.Close, nil
	}
	return b, func() {}, nil
}

// known rejects files of another known format, and names the format.
func known(path string, b *bufio.Reader) error {
	head, err := b.Peek(profilefile.HeadSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if profilefile.IsSQLite(head) {
		return fmt.Errorf("%w: it is an SQLite database (the receiver nsys reads databases of Nsight Systems)", ErrNotTrace)
	}
	if profilefile.IsXPlane(path, head) {
		return fmt.Errorf("%w: it is an XPlane profile (the receiver xplane reads them)", ErrNotTrace)
	}
	if what := profilefile.Foreign(path, head); what != "" {
		return fmt.Errorf("%w: %s", ErrNotTrace, what)
	}
	return nil
}

// knownPacked is like known, for compressed content.
func knownPacked(path string, b *bufio.Reader) error {
	if head, _ := b.Peek(4); len(head) == 4 && (string(head[:2]) == gzipMagic || string(head) == zstdMagic) {
		return fmt.Errorf("%w: it was compressed twice (decompress it once)", ErrNotTrace)
	}
	return known(path, b)
}

// gzipMembers reads one gzip member after another. Zeros after the last one, with which tapes and
// block devices fill their blocks, are passed over, as gzip(1) does.
type gzipMembers struct {
	z    *gzip.Reader
	from *bufio.Reader
}

func (g *gzipMembers) Read(b []byte) (int, error) {
	n, err := g.z.Read(b)
	if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, err
	}
	for {
		c, err := g.from.ReadByte()
		if err != nil {
			return n, err // io.EOF: this was the last member
		}
		if c != 0 {
			break
		}
	}
	if err := g.from.UnreadByte(); err != nil {
		return n, err
	}
	if err := g.z.Reset(g.from); err != nil {
		return n, err
	}
	g.z.Multistream(false)
	return n, nil
}
