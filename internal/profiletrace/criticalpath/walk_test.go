// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package criticalpath

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

const us = int64(1000)

// scene is a small profile; times are microseconds.
type scene struct {
	r    *Recorder
	logs map[uint32]*timeline.Log
}

func newScene(steps bool, threads ...uint32) *scene {
	s := &scene{NewRecorder(steps, 0), map[uint32]*timeline.Log{}}
	for _, t := range threads {
		s.logs[t] = &timeline.Log{}
		s.r.Thread(t, s.logs[t].Remember())
	}
	return s
}

// names are the ranges and kernels of scenes, by number.
var names = []string{
	"", "load", "forward", "backward", "optimizer", "sync", "gemm", "relu", "item", "train", "cat", "evaluate", "adam",
}

func number(name string) uint32 { return uint32(slices.Index(names, name)) }

func (s *scene) op(thread uint32, name string, from, to int64) {
	s.rang(thread, timeline.RangeOperator, name, from, to)
}

func (s *scene) rang(thread uint32, class timeline.Range, name string, from, to int64) {
	s.logs[thread].Add(from*us, to*us, class, number(name), func() int64 { return 0 })
}

// kernel adds an activity that a call at a time launched, which took 4 µs.
func (s *scene) kernel(stream, thread uint32, name string, called, from, to int64) {
	s.r.Add(Activity{
		Start: from * us, End: to * us, Called: called * us, Returned: (called + 4) * us, Stream: stream, Thread: thread,
		Name: number(name), Kind: Kernel, Launched: true,
	})
}

func (s *scene) other(k Kind, stream, thread uint32, name string, called, returned, from, to int64) {
	s.r.Add(Activity{
		Start: from * us, End: to * us, Called: called * us, Returned: returned * us, Stream: stream, Thread: thread,
		Name: s.r.Label(name), Kind: k, Launched: true, Blocks: k == Copy,
	})
}

var naming = &Naming{
	Range:  func(i uint32) string { return names[i] },
	Kernel: func(i uint32) string { return names[i] },
	Thread: func(i uint32) string { return fmt.Sprintf("t%d", i) },
	Stream: func(i uint32) string { return fmt.Sprintf("s%d", i) },
}

// drawn returns the segments of the median step, a line each.
func drawn(p *Path) (lines []string) {
	for _, s := range p.Median.Segments {
		line := fmt.Sprintf("%d %s %s %s", s[0]/us, Kind(s[1]), p.Median.Lanes[s[2]], p.Median.Names[s[3]])
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// adds checks that all sums of a path are its length.
func adds(t *testing.T, p *Path) {
	t.Helper()
	var kinds, drawn time.Duration
	for _, k := range p.Kinds {
		kinds += k.Time
	}
	parts := p.Rest
	for i := range p.Parts {
		parts += p.Parts[i].Time
	}
	for _, s := range p.Median.Segments {
		drawn += time.Duration(s[0])
	}
	assert.Equal(t, p.Length, kinds, "kinds")
	assert.Equal(t, p.Length, parts, "parts")
	assert.Equal(t, p.Median.Length, drawn, "segments of the median step")
}

// In each scene the path is known by construction.
func TestPathsOfSmallProfiles(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps bool
		scene func(s *scene)
		want  []string
	}{
		{"the host is slower than the device", false, func(s *scene) {
			s.op(1, "forward", 0, 100)
			s.op(1, "backward", 100, 200)
			s.kernel(7, 1, "relu", 90, 96, 110)
			s.kernel(7, 1, "gemm", 190, 196, 230)
		}, []string{"100 host t1 forward", "90 host t1 backward", "6 launch_delay s7", "34 kernel s7 gemm"}},

		{"the device is slower than the host", false, func(s *scene) {
			s.op(1, "forward", 0, 40)
			s.kernel(7, 1, "relu", 10, 16, 110)
			s.kernel(7, 1, "gemm", 20, 111, 230)
		}, []string{"10 host t1 forward", "6 launch_delay s7", "94 kernel s7 relu", "1 queue_delay s7", "119 kernel s7 gemm"}},

		{"communication overlaps, but the rest waits for it", false, func(s *scene) {
			s.op(1, "backward", 0, 60)
			s.kernel(7, 1, "gemm", 10, 16, 100)
			s.other(Communication, 9, 1, "all_reduce", 20, 24, 26, 300)
			s.kernel(7, 1, "relu", 30, 101, 150)
			s.kernel(7, 1, "adam", 40, 302, 330)
		}, []string{
			"20 host t1 backward", "6 launch_delay s9", "274 communication s9 all_reduce", "2 queue_delay s7",
			"28 kernel s7 adam",
		}},

		{"communication is hidden", false, func(s *scene) {
			s.op(1, "backward", 0, 60)
			s.kernel(7, 1, "gemm", 10, 16, 200)
			s.other(Communication, 9, 1, "all_reduce", 20, 24, 26, 190)
			s.kernel(7, 1, "relu", 30, 201, 250)
		}, []string{"10 host t1 backward", "6 launch_delay s7", "184 kernel s7 gemm", "1 queue_delay s7", "49 kernel s7 relu"}},

		{"a wait that the profile states, although another stream ended later", false, func(s *scene) {
			s.op(1, "forward", 0, 60)
			s.kernel(7, 1, "gemm", 10, 16, 200)
			s.kernel(8, 1, "cat", 20, 26, 205)
			s.r.Wait(30*us, 9, 15*us, 7)
			s.kernel(9, 1, "relu", 40, 206, 250)
		}, []string{"10 host t1 forward", "6 launch_delay s7", "184 kernel s7 gemm", "6 queue_delay s9", "44 kernel s9 relu"}},

		{"a wait of the host in the middle", false, func(s *scene) {
			s.op(1, "forward", 0, 30)
			s.rang(1, timeline.CallWait, "sync", 30, 108)
			s.op(1, "optimizer", 108, 160)
			s.kernel(7, 1, "gemm", 10, 16, 100)
			s.kernel(7, 1, "adam", 150, 156, 170)
		}, []string{
			"10 host t1 forward", "6 launch_delay s7", "84 kernel s7 gemm", "8 host t1 sync", "42 host t1 optimizer",
			"6 launch_delay s7", "14 kernel s7 adam",
		}},

		{"a call that waited for nothing is the host's time", false, func(s *scene) {
			s.op(1, "forward", 0, 30)
			s.kernel(7, 1, "gemm", 10, 16, 100)
			s.op(1, "item", 120, 200)
			s.rang(1, timeline.CallWait, "sync", 130, 150)
			s.kernel(7, 1, "adam", 190, 196, 210)
		}, []string{
			"30 host t1 forward", "90 host t1 no named range", "10 host t1 item", "20 host t1 sync", "40 host t1 item", "6 launch_delay s7",
			"14 kernel s7 adam",
		}},

		{"a copy that blocks its call", false, func(s *scene) {
			s.op(1, "forward", 0, 30)
			s.op(1, "item", 30, 120)
			s.rang(1, timeline.CallOther, "item", 40, 115)
			s.op(1, "optimizer", 120, 160)
			s.kernel(7, 1, "gemm", 10, 16, 100)
			s.other(Copy, 7, 1, "device_to_host", 40, 115, 101, 110)
			s.kernel(7, 1, "adam", 150, 156, 170)
		}, []string{
			"10 host t1 forward", "6 launch_delay s7", "84 kernel s7 gemm", "1 queue_delay s7", "9 copy s7 device_to_host",
			"10 host t1 item", "30 host t1 optimizer", "6 launch_delay s7", "14 kernel s7 adam",
		}},

		{"a copy whose call copies pageable memory first", false, func(s *scene) {
			s.op(1, "forward", 0, 30)
			s.op(1, "load", 30, 620)
			s.kernel(7, 1, "gemm", 10, 16, 20)
			s.other(Copy, 7, 1, "host_to_device", 40, 610, 400, 600)
		}, []string{"30 host t1 forward", "370 host t1 load", "200 copy s7 host_to_device"}},

		{"a gap that nothing explains", false, func(s *scene) {
			s.op(1, "forward", 0, 30)
			s.kernel(7, 1, "gemm", 10, 16, 100)
			s.kernel(7, 1, "relu", 20, 400, 450)
		}, []string{"10 host t1 forward", "6 launch_delay s7", "84 kernel s7 gemm", "300 unexplained s7", "50 kernel s7 relu"}},

		{"a kernel that starts when another one leaves room", false, func(s *scene) {
			s.op(1, "forward", 0, 60)
			s.kernel(7, 1, "gemm", 10, 16, 400)
			s.kernel(8, 1, "relu", 20, 380, 500)
		}, []string{"10 host t1 forward", "6 launch_delay s7", "364 kernel s7 gemm", "120 kernel s8 relu"}},

		{"a kernel does not wait for a copy to leave room", false, func(s *scene) {
			s.op(1, "forward", 0, 60)
			s.kernel(7, 1, "gemm", 10, 16, 20)
			s.other(Copy, 8, 1, "host_to_device", 15, 19, 21, 400)
			s.kernel(7, 1, "relu", 20, 380, 500)
		}, []string{"20 host t1 forward", "6 launch_delay s7", "354 unexplained s7", "120 kernel s7 relu"}},

		{"a call that returns as its copy starts does not wait for it", false, func(s *scene) {
			s.op(1, "load", 0, 50)
			s.op(1, "forward", 50, 300)
			s.other(Copy, 7, 1, "host_to_device", 60, 200, 200, 205)
			s.kernel(7, 1, "gemm", 210, 216, 260)
		}, []string{"50 host t1 load", "160 host t1 forward", "6 launch_delay s7", "44 kernel s7 gemm"}},

		{"work whose launch is unknown", false, func(s *scene) {
			s.r.Add(Activity{Start: 10 * us, End: 60 * us, Stream: 7, Name: number("gemm"), Kind: Kernel})
			s.r.Add(Activity{Start: 200 * us, End: 250 * us, Stream: 8, Name: number("relu"), Kind: Kernel})
		}, []string{"10 unexplained s7", "50 kernel s7 gemm", "140 unexplained s8", "50 kernel s8 relu"}},

		{"the backward pass runs on another thread", false, func(s *scene) {
			s.op(1, "forward", 0, 50)
			s.rang(1, timeline.RangeNamed, "backward", 50, 200)
			s.op(1, "optimizer", 200, 240)
			s.op(2, "evaluate", 60, 180)
			s.kernel(7, 1, "gemm", 10, 16, 20)
			s.kernel(7, 2, "relu", 170, 176, 180)
			s.kernel(7, 1, "adam", 230, 236, 260)
		}, []string{
			"50 host t1 forward", "10 host t1 backward", "120 host t2 evaluate", "20 host t1 backward", "30 host t1 optimizer",
			"6 launch_delay s7", "24 kernel s7 adam",
		}},

		{"a step that ends on the host", true, func(s *scene) {
			s.r.Step(100*us, 400*us, 1, number("train"))
			s.rang(1, timeline.RangeStep, "train", 100, 400)
			s.rang(1, timeline.RangeLoader, "load", 110, 300)
			s.op(1, "forward", 300, 360)
			s.kernel(7, 1, "gemm", 310, 316, 330)
		}, []string{"10 host t1 no named range", "190 host t1 load", "60 host t1 forward", "40 host t1 no named range"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(c.steps, 1, 2)
			c.scene(s)
			p := s.r.Path(naming)
			require.NotNil(t, p)
			assert.Equal(t, c.want, drawn(p))
			adds(t, p)
		})
	}
}

// Where streams have no statement of what they wait for, the count of inferences tells.
func TestWaitsBetweenStreamsAreCounted(t *testing.T) {
	for _, stated := range []bool{false, true} {
		s := newScene(false, 1)
		s.op(1, "forward", 0, 60)
		s.kernel(7, 1, "gemm", 10, 16, 200)
		if stated {
			s.r.Wait(30*us, 8, 25*us, 7)
		}
		s.kernel(8, 1, "relu", 40, 210, 250)
		p := s.r.Path(naming)
		assert.Equal(t, []string{
			"10 host t1 forward", "6 launch_delay s7", "184 kernel s7 gemm", "10 queue_delay s8", "40 kernel s8 relu",
		}, drawn(p))
		assert.Equal(t, stated, p.Stated == 1)
		assert.Equal(t, stated, p.Inferred == 0)
	}
}

// Steps whose work runs on after their range follow one another without an overlap.
func TestStepsEndWithTheirWork(t *testing.T) {
	s := newScene(true, 1)
	for i := range int64(5) {
		at := 100 * i
		s.r.Step(at*us, (at+100)*us, 1, number("train"))
		s.rang(1, timeline.RangeStep, "train", at, at+100)
		s.op(1, "forward", at, at+90)
	}
	for i := range int64(5) {
		s.kernel(7, 1, "gemm", 100*i+10, max(16, 200*i+20), 200*i+220)
	}
	p := s.r.Path(naming)
	assert.EqualValues(t, 5, p.Steps)
	assert.EqualValues(t, 1020*us, p.Length)
	adds(t, p)
	assert.EqualValues(t, 200*us, p.Median.Length)
	assert.Equal(t, []string{"200 kernel s7 gemm"}, drawn(p))
	assert.Equal(t, 1.0, p.Share(p.Length))
	assert.EqualValues(t, 204*us, p.Mean(p.Length))
}

// A step with more activities than are kept is walked in parts.
func TestLongStepsAreWalkedInParts(t *testing.T) {
	s := newScene(false, 1)
	const count = 3*maxActivities + 17
	for i := range int64(count) {
		s.op(1, "forward", 10*i, 10*i+5)
		s.kernel(7, 1, "gemm", 10*i+1, 20*i+7, 20*i+26)
		require.LessOrEqual(t, len(s.r.acts), maxActivities)
	}
	p := s.r.Path(naming)
	adds(t, p)
	assert.EqualValues(t, (20*(count-1)+26)*us, p.Length)
	assert.Zero(t, p.Dropped)
	assert.EqualValues(t, count, p.Parts[0].Count)
	assert.LessOrEqual(t, len(p.Median.Segments), maxDrawn)
	assert.NotZero(t, p.Median.Shortest)
}

// The kept steps represent all lengths, in whatever order they come.
func TestTheMedianStepIsFound(t *testing.T) {
	for name, length := range map[string]func(i int64) int64{
		"rising":  func(i int64) int64 { return 10 + i },
		"falling": func(i int64) int64 { return 1000 - i },
		"mixed":   func(i int64) int64 { return 10 + i*7919%301 },
	} {
		s := newScene(true, 1)
		at, all := int64(0), []int64{}
		const count = 301
		for i := range int64(count) {
			n := length(i)
			s.r.Step(at*us, (at+n)*us, 1, number("train"))
			s.op(1, "forward", at, at+n)
			s.kernel(7, 1, "gemm", at+1, at+2, at+5)
			at += n
			all = append(all, n)
		}
		slices.Sort(all)
		p := s.r.Path(naming)
		assert.EqualValues(t, count, p.Steps)
		assert.InDelta(t, all[count/2], int64(p.Median.Length)/us, float64(all[count-1]-all[0])/keptSteps, name)
		adds(t, p)
	}
}

// With programmatic dependent launch, each kernel starts before the one before it ends.
func TestOverlappingKernelsOfAStreamAreThePath(t *testing.T) {
	s := newScene(false, 1)
	s.op(1, "forward", 0, 20)
	for i := range int64(10) {
		s.kernel(1, 1, "gemm", 2*i, 20+37*i, 60+37*i)
	}
	p := s.r.Path(naming)
	require.NotNil(t, p)
	adds(t, p)
	assert.Equal(t, Kernel, p.Kinds[0].Kind)
	assert.Equal(t, time.Duration((60+37*9-20)*us), p.Kinds[0].Time, "from the first start to the last end")
}

// The host asks every 50 µs whether the kernel has ended: what it waits for is the path, and little
// could be gained.
func TestPollingIsAWait(t *testing.T) {
	s := newScene(false, 1)
	s.op(1, "forward", 0, 10)
	s.kernel(1, 1, "gemm", 2, 10, 1010)
	for at := int64(20); at < 1030; at += 50 {
		s.r.Poll(1, number("sync"), at*us, (at+2)*us)
	}
	s.op(1, "optimizer", 1030, 1040)
	s.kernel(1, 1, "adam", 1032, 1040, 1100)
	p := s.r.Path(naming)
	require.NotNil(t, p)
	adds(t, p)
	assert.Equal(t, Kernel, p.Kinds[0].Kind)
	assert.Equal(t, time.Duration(1060*us), p.Kinds[0].Time)
}

// Work of the host beside a busy device can save what the device is idle for, and no more.
func TestTheGainOfTheHostIsBoundedByIdleTime(t *testing.T) {
	s := newScene(false, 1)
	s.op(1, "forward", 0, 1000)
	s.kernel(1, 1, "gemm", 5, 10, 960)
	s.kernel(1, 1, "adam", 995, 1000, 1100)
	p := s.r.Path(naming)
	require.NotNil(t, p)
	for _, x := range p.Parts {
		if x.Kind == Host {
			assert.Equal(t, time.Duration(995*us), x.Time)
			assert.Equal(t, time.Duration(45*us), x.Gain, "10 µs before the first kernel and 35 µs after it")
		}
	}
}

// A wait that outlasts all recorded work is no work of the host.
func TestAWaitForUnrecordedWorkIsNotTheHost(t *testing.T) {
	s := newScene(false, 1)
	s.op(1, "forward", 0, 10)
	s.kernel(1, 1, "gemm", 2, 10, 110)
	s.rang(1, timeline.CallWait, "sync", 20, 3110)
	s.op(1, "optimizer", 3110, 3120)
	s.kernel(1, 1, "adam", 3112, 3120, 3200)
	p := s.r.Path(naming)
	require.NotNil(t, p)
	adds(t, p)
	assert.Equal(t, NotRecorded, p.Kinds[0].Kind)
	assert.Equal(t, time.Duration(3000*us), p.Kinds[0].Time)
}
