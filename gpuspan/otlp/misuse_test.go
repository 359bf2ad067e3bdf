// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
)

// total returns the number of spans in a sink's statistics.
func total(s *Sink) (n int64) {
	st := s.Stats()
	n = st.Sent
	for _, d := range st.Dropped {
		n += d
	}
	return n
}

func TestFlushDoesNotWaitForLaterSections(t *testing.T) {
	var s *Sink
	s, _ = newSink(t, func(context.Context, []byte) (int64, error) {
		s.Section(section("b")) // as other goroutines do during a request
		return 0, nil
	})
	s.Section(section("a"))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, s.Flush(ctx))
	require.Equal(t, Stats{Sent: 1, Dropped: map[string]int64{}}, s.Stats())
}

func TestASenderThatPanicsCostsItsRequestsOnly(t *testing.T) {
	calls := 0
	s, _ := newSink(t, func(context.Context, []byte) (int64, error) {
		switch calls++; calls {
		case 1:
			panic("oops")
		case 2:
			runtime.Goexit()
		}
		return 0, nil
	}, BatchSize(2))
	for range 3 {
		s.Section(section("a"))
		s.Section(section("a"))
		require.NoError(t, s.Flush(context.Background()))
	}
	require.Equal(t, Stats{Sent: 2, Dropped: map[string]int64{"rejected": 4}}, s.Stats())
}

func TestANegativeNumberOfRejectedSpansIsIgnored(t *testing.T) {
	s, _ := newSink(t, func(context.Context, []byte) (int64, error) { return -5, nil })
	s.Section(section("a"))
	require.NoError(t, s.Flush(context.Background()))
	require.Equal(t, Stats{Sent: 1, Dropped: map[string]int64{}}, s.Stats())
}

func TestNoContextIsTheBackground(t *testing.T) {
	s, _ := newSink(t, func(context.Context, []byte) (int64, error) { return 0, nil })
	s.Section(section("a"))
	require.NoError(t, s.Flush(nil))    //nolint:staticcheck // nil on purpose
	require.NoError(t, s.Shutdown(nil)) //nolint:staticcheck // nil on purpose
	require.EqualValues(t, 1, s.Stats().Sent)
}

func TestShutdownStatesThatTheSenderHangs(t *testing.T) {
	release := make(chan struct{})
	s, err := New(To(&sender{send: func(context.Context, []byte) (int64, error) { <-release; return 0, nil }}), BatchSize(1))
	require.NoError(t, err)
	for range 3 {
		s.Section(section("a"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.ErrorContains(t, s.Shutdown(ctx), "the sender does not return")
	close(release)
	<-s.done
	require.EqualValues(t, 3, total(s))
}

func TestLongSpansMakeRequestsThatReceiversTake(t *testing.T) {
	longest := 0
	s, _ := newSink(t, func(_ context.Context, b []byte) (int64, error) { longest = max(longest, len(b)); return 0, nil })
	long := section(strings.Repeat("a", 1<<20))
	for range 20 {
		s.Section(long)
	}
	require.NoError(t, s.Flush(context.Background()))
	require.EqualValues(t, 20, s.Stats().Sent)
	require.LessOrEqual(t, longest, 4<<20)
}

func TestAResourceThatIsNoUTF8IsRepaired(t *testing.T) {
	s, x := newSink(t, nil, Resource(attribute.String("a\xff", "b\xff")))
	got := make(chan string, 1)
	x.send = func(_ context.Context, b []byte) (int64, error) { got <- string(b); return 0, nil }
	s.Section(section("a"))
	require.NoError(t, s.Flush(context.Background()))
	require.Contains(t, <-got, "a\uFFFD\x12\x06\x0a\x04b\uFFFD")
}
