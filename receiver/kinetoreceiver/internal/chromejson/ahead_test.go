// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/prefetch"
)

// script is a Handler that records all calls, and fails or panics at one of them.
type script struct {
	calls  []string
	fails  int // number of the failing call, from 1
	panics int
}

var errScript = errors.New("the handler's")

func (s *script) Wants(phase byte) bool { return phase != 's' }

func (s *script) Event(e *Event) error {
	return s.call(fmt.Sprintf("%c %s %s %s %s %s %s %s", e.Phase, e.Cat, e.Name, e.PID, e.TID, e.TS, e.Dur, e.Args))
}

func (s *script) Meta(k, v []byte) error { return s.call("meta " + string(k) + string(v)) }

func (s *script) call(what string) error {
	s.calls = append(s.calls, what)
	switch len(s.calls) {
	case s.fails:
		return errScript
	case s.panics:
		panic(what)
	}
	return nil
}

// longTrace returns a trace of several windows with every kind of value, values longer than a
// window, and top-level fields before, between and after the events.
func longTrace(r *rand.Rand) string {
	var b strings.Builder
	b.WriteString(`{"schemaVersion": 1, "x": [` + strings.Repeat("1,", r.IntN(window)) + `1], "traceEvents": [`)
	for i := range 3000 + r.IntN(3000) {
		if i > 0 {
			b.WriteString(", ")
		}
		long := ""
		switch r.IntN(1000) {
		case 0:
			long = strings.Repeat("y", r.IntN(3*window))
		case 1:
			b.WriteString(`"no event", `)
		}
		fmt.Fprintf(&b, `{"ph": %q, "cat": "c", "name": "n%d", "pid": 1, "tid": %d, "ts": %d.5, "dur": %d, "args": {"a": "%s"}}`,
			string("Xis"[r.IntN(3)]), i, r.IntN(3), i, r.IntN(100), long+strings.Repeat("z", r.IntN(200)))
	}
	b.WriteString(`], "traceName": "t", "traceEvents": [{"ph": "X"}], "end": {"a": 1}} `)
	return b.String()
}

func TestTwoGoroutinesReadTheSameAsOne(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		text, fails := longTrace(r), 0
		switch i % 4 {
		case 1: // cut
			text = text[:r.IntN(len(text))]
		case 2: // broken
			at := r.IntN(len(text))
			text = text[:at] + string(`"{}[]:,x`[r.IntN(8)]) + text[at:]
		case 3:
			fails = 1 + r.IntN(4000)
		}
		stream := func() io.Reader {
			s := io.Reader(strings.NewReader(text))
			if i%3 == 1 {
				s = iotest.DataErrReader(iotest.HalfReader(s))
			}
			return s
		}
		one, two := &script{fails: fails}, &script{fails: fails}
		want, wantErr := newReader(stream(), one).alone(one)
		got, gotErr := newReader(stream(), two).ahead(two)
		require.Equal(t, wantErr, gotErr)
		if fails > 0 && errors.Is(wantErr, errScript) { // skipped events are counted per window
			want.NoEvents = 0
		}
		require.Equal(t, want, got)
		require.Equal(t, one.calls, two.calls)
	}
}

// watched is an endless stream that detects reads when none are allowed.
type watched struct {
	t      *testing.T
	over   atomic.Bool
	bytes  atomic.Int64
	panics int64 // after this many bytes; 0: never
}

func (w *watched) Read(b []byte) (int, error) {
	assert.False(w.t, w.over.Load(), "read after Read returned")
	const event = ` {"ph": "X", "name": "abc"},`
	at, n := w.bytes.Load(), 0
	if at == 0 {
		n = copy(b, "[")
	} else {
		n = copy(b, event[(at-1)%int64(len(event)):])
	}
	if all := w.bytes.Add(int64(n)); w.panics > 0 && all > w.panics {
		panic("the stream's")
	}
	return n, nil
}

func TestReadingEndsWithTheHandler(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	for _, at := range []int{1, 2, 1000, 20_000} {
		w := &watched{t: t}
		h := &script{fails: at}
		_, err := newReader(w, h).ahead(h)
		w.over.Store(true)
		require.ErrorIs(t, err, errScript)
		assert.Len(t, h.calls, at)
		assert.LessOrEqual(t, w.bytes.Load(), int64(28*at+(prefetch.Batches+1)*window), "read ahead")

		w = &watched{t: t}
		h = &script{panics: at}
		assert.PanicsWithValue(t, "X  abc     ", func() { _, _ = newReader(w, h).ahead(h) })
		w.over.Store(true)
	}
}

func TestReadRepeatsAPanicOfTheStream(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	for _, at := range []int64{1, 100, 5 * window} {
		h := &script{}
		assert.PanicsWithValue(t, "the stream's", func() { _, _ = newReader(&watched{t: t, panics: at}, h).ahead(h) }, strconv.Itoa(int(at)))
	}
}

// deaf is a Handler that ignores all calls.
type deaf struct{}

func (deaf) Wants(byte) bool        { return true }
func (deaf) Event(*Event) error     { return nil }
func (deaf) Meta(_, _ []byte) error { return nil }

func TestWindowsThatGrewAreUsedAgain(t *testing.T) {
	const long, events = 300 << 10, 200
	event := `{"args": {"a": "` + strings.Repeat("x", long) + `"}},{},`
	text := "[" + strings.Repeat(event, events) + "{}]"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := newReader(strings.NewReader(text), deaf{}).ahead(deaf{})
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20), "of %d MB read", len(text)>>20)
}
