// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"testing"
	"time"
)

// fullStore returns a store with eight devices with 16 fields each at 10 Hz for five minutes.
func fullStore(b *testing.B) (*Store, int64, int64) {
	st := NewStore(NewDefaultConfig(), nil)
	const n = 3000
	end := time.Now().UnixNano()
	start := end - n*int64(100*time.Millisecond)
	for g := range 8 {
		w, err := st.Register(owner, Device{ID: "GPU-" + string(rune('a'+g)), Interval: 100 * time.Millisecond})
		if err != nil {
			b.Fatal(err)
		}
		for i := range n {
			s := Sample{Time: start + int64(i)*int64(100*time.Millisecond)}
			for f := range NumFields {
				s.Set(Field(f), float64(i))
			}
			w.Write([]Sample{s})
		}
	}
	return st, start, end
}

// BenchmarkMean measures one window lookup in a full ring, including the lock.
func BenchmarkMean(b *testing.B) {
	st, start, end := fullStore(b)
	b.ReportAllocs()
	b.ResetTimer()
	i := int64(0)
	for b.Loop() {
		v := st.Acquire()
		d, _ := v.Lookup("GPU-d")
		i += 7919
		s := start + (i*1000003)%(end-start-second)
		_, _ = d.Mean(Power, s, s+second)
		v.Release()
	}
}

// BenchmarkSpan measures all lookups of a join for one span of one second: ten means, a maximum, a
// mask, coverage.
func BenchmarkSpan(b *testing.B) {
	st, start, end := fullStore(b)
	b.ReportAllocs()
	b.ResetTimer()
	i := int64(0)
	for b.Loop() {
		i += 7919
		s := start + (i*1000003)%(end-start-second)
		v := st.Acquire()
		d, _ := v.Lookup("GPU-d")
		for f := Power; f <= ClockMemory; f++ {
			_, _ = d.Mean(f, s, s+second)
		}
		_, _ = d.Max(Temperature, s, s+second)
		_ = d.Mask(Throttle, s, s+second)
		_, _ = d.Coverage(s, s+second)
		v.Release()
	}
}

// BenchmarkMeanByScan is the baseline: the same mean by a linear scan over a slice of samples.
func BenchmarkMeanByScan(b *testing.B) {
	const n = 3000
	var pts [n]struct {
		t int64
		v float64
	}
	for i := range pts {
		pts[i].t, pts[i].v = int64(i)*int64(100*time.Millisecond), float64(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	i, sink := int64(0), 0.0
	for b.Loop() {
		i += 7919
		s := (i * 1000003) % (299 * second)
		e := s + second
		sum, covered := 0.0, int64(0)
		for k := 1; k < n; k++ {
			lo, hi := max(pts[k-1].t, s), min(pts[k].t, e)
			if hi > lo {
				sum += pts[k].v * float64(hi-lo)
				covered += hi - lo
			}
		}
		sink += sum / float64(covered)
	}
	_ = sink
}

// BenchmarkWrite measures writing one sample of all 16 fields into a full ring.
func BenchmarkWrite(b *testing.B) {
	st := NewStore(NewDefaultConfig(), nil)
	w, err := st.Register(owner, Device{ID: "GPU-a", Interval: time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	t := time.Now().UnixNano() - int64(time.Hour)
	s := []Sample{{}}
	for f := range NumFields {
		s[0].Set(Field(f), 1)
	}
	write := func() {
		t += int64(time.Microsecond)
		s[0].Time = t
		w.Write(s)
	}
	for range 1 << 18 {
		write()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		write()
	}
}
