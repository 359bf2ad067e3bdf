// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of this file describe what a host engine does. They run against the stub, and with
// OTELGPU_DCGM_ENGINE and OTELGPU_DCGM_DEVICES against a real engine: what the stub promises and
// the engine does not is a fault of the stub.

// bench is a host engine with two boards, a real one or the stub, and one client.
type bench struct {
	t *testing.T
	*client
	machine
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, client: &client{}}
	target := os.Getenv(envEngine)
	if target == "" {
		b.machine, target = machine{"gpus": 2, "gpm": 3}, "localhost:5555"
		b.machine.write(t)
	}
	require.NoError(t, b.init(target))
	t.Cleanup(func() { assert.NoError(t, b.shutdown()) })
	return b
}

// driver changes the first board: a key of the stub with its value, and the settings of the command
// for real engines.
func (b *bench) driver(key string, value any, settings ...string) {
	b.t.Helper()
	if b.machine != nil {
		b.machine.set(b.t, key, value)
		return
	}
	control(b.t, append([]string{"set", "0"}, settings...)...)
}

// watched is fields of the first board that are watched.
type watched struct {
	*bench
	group, fields uintptr
	from          int64
}

func (b *bench) start(every time.Duration, ids ...uint16) *watched {
	b.t.Helper()
	w := &watched{bench: b, from: time.Now().UnixMicro()}
	var err error
	w.group, err = b.createGroup("otelgpu-test", []entity{{entityGPU, 0}})
	require.NoError(b.t, err)
	w.fields, err = b.createFieldGroup(fmt.Sprintf("otelgpu-test-%d-%d", os.Getpid(), w.from), ids)
	require.NoError(b.t, err)
	require.NoError(b.t, b.watch(w.group, w.fields, every.Microseconds(), 60))
	return w
}

func (w *watched) stop() {
	require.NoError(w.t, w.unwatch(w.group, w.fields))
	require.NoError(w.t, w.destroyFieldGroup(w.fields))
	require.NoError(w.t, w.destroyGroup(w.group))
}

// history returns the values since the start, by field, once done accepts them.
func (w *watched) history(done func(map[uint16][]rawValue) bool) (values map[uint16][]rawValue) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		values = map[uint16][]rawValue{}
		_, err := w.valuesSince(w.group, w.fields, w.from, func(v *rawValue) {
			values[v.field] = append(values[v.field], *v)
		})
		require.NoError(w.t, err)
		return done(values)
	}, time.Minute, 20*time.Millisecond)
	return values
}

// atLeast accepts n values of a field.
func atLeast(n int, field uint16) func(map[uint16][]rawValue) bool {
	return func(values map[uint16][]rawValue) bool { return len(values[field]) >= n }
}

// gap is the time between two values, in microseconds.
func gap(a, b rawValue) int64 { return max(a.ts-b.ts, b.ts-a.ts) }

// The first reading is at the time of the watch. The fields of a reading have times of their own.
func TestPromiseOfTimes(t *testing.T) {
	b := newBench(t)
	ids := []uint16{100, 150, 155, 156, 203, 252, 310}
	w := b.start(100*time.Millisecond, ids...)
	defer w.stop()
	values := w.history(atLeast(5, 156))
	for _, id := range ids {
		list := values[id]
		assert.GreaterOrEqual(t, list[0].ts, w.from, "field %d is read after the watch", id)
		for i, v := range list[:4] {
			assert.Equal(t, statusOK, v.status)
			assert.Less(t, v.ts, list[i+1].ts, "field %d", id)
		}
	}
	assert.NotEqual(t, values[155][2].ts, values[203][2].ts, "read one after another")
	// The engine may be interrupted between two fields of one reading, but not in each reading.
	apart := slices.MinFunc([]int{0, 1, 2, 3}, func(i, j int) int {
		return cmp.Compare(gap(values[156][i], values[310][i]), gap(values[156][j], values[310][j]))
	})
	assert.LessOrEqual(t, gap(values[156][apart], values[310][apart]), int64(10), "read together")
	assert.GreaterOrEqual(t, values[156][2].ts, values[203][2].ts, "and last")
}

// A value that was never read has no time, and two states: nobody watches it, or it has no sample
// yet.
func TestPromiseOfAbsentValues(t *testing.T) {
	b := newBench(t)
	w := b.start(time.Hour, fieldXID)
	defer w.stop()
	never, err := b.createFieldGroup(fmt.Sprintf("otelgpu-never-%d", os.Getpid()), []uint16{160})
	require.NoError(t, err)
	for status, fields := range map[int]uintptr{statusNoData: w.fields, -16: never} {
		seen := 0
		require.NoError(t, b.latest(w.group, fields, func(v *rawValue) {
			seen++
			assert.Equal(t, status, v.status)
			assert.Zero(t, v.ts)
			_, ok := v.number()
			assert.False(t, ok)
		}))
		assert.Equal(t, 1, seen, "one placeholder")
	}
	assert.NoError(t, b.destroyFieldGroup(never))
}

// Each process of a reading is a value, 1 µs after the one before. The newest value is the last
// process.
func TestPromiseOfProcesses(t *testing.T) {
	b := newBench(t)
	b.driver("process", []string{"1:0:1000:104857600", "1:0:1001:104857600", "1:0:1002:104857600"}, "procs=3", "proc_mib=100")
	w := b.start(100*time.Millisecond, fieldProcesses)
	defer w.stop()
	list := w.history(atLeast(9, fieldProcesses))[fieldProcesses]
	first := slices.IndexFunc(list, func(v rawValue) bool { return v.i == 1000 && v.ts > list[0].ts })
	for i := range int64(3) {
		v := list[first+int(i)]
		assert.Equal(t, []int64{1000 + i, 100 << 20, i}, []int64{v.i, v.more, v.ts - list[first].ts})
	}
	b.driver("process", []string{"1:0:1000:9223372036854775794"}, "procs=1", "proc_mib=-1")
	unknown := func(v rawValue) bool { return v.i == 1000 && v.more >= blankInt }
	w.history(func(values map[uint16][]rawValue) bool { return slices.ContainsFunc(values[fieldProcesses], unknown) })
	require.Eventually(t, func() bool {
		ok := false
		require.NoError(t, b.latest(w.group, w.fields, func(v *rawValue) { ok = unknown(*v) }))
		return ok
	}, time.Minute, 20*time.Millisecond)
	b.driver("process", []string{}, "procs=0")
}

// Every field states by its value why the driver did not give it, with status 0. Profiling fields
// state no reason, and a power that is refused in its field only is 0 W.
func TestPromiseOfBlanks(t *testing.T) {
	ordinary, profiling := []uint16{100, 112, 150, 155, 156, 203, 252, 310}, uint16(1002)
	for _, c := range []struct {
		key    string
		code   int // of NVML
		reason int64
	}{{"unsupported", 3, 2}, {"noperm", 4, 3}, {"failing", 999, 0}, {"failing", 15, 0}} {
		b := newBench(t)
		var settings []string
		for call := range strings.FieldsSeq("power energy util mem temp clock throttle ecc gpm") {
			settings = append(settings, fmt.Sprintf("err_%s=%d", call, c.code))
		}
		b.driver(c.key, "100,112,150,155,156,203,252,310,1002", settings...)
		w := b.start(100*time.Millisecond, append(ordinary, profiling)...)
		for id, list := range w.history(atLeast(3, 310)) {
			if id == profiling {
				continue
			}
			v := list[len(list)-1]
			assert.Equal(t, statusOK, v.status)
			want := rawValue{i: blankInt + c.reason}
			if id == 155 {
				want = rawValue{f: blankDouble + float64(c.reason)}
			}
			assert.Equal(t, []any{want.i, want.f}, []any{v.i, v.f}, "%d after error %d", id, c.code)
		}
		for _, v := range w.history(atLeast(3, profiling))[profiling] {
			assert.Equal(t, blankDouble, v.f, "profiling after error %d", c.code)
		}
		w.stop()
		for i := range settings {
			settings[i] = strings.Split(settings[i], "=")[0] + "=0"
		}
		b.driver(c.key, "0", settings...)
	}
	b := newBench(t)
	b.driver("unsupported", "157", "err_instant_field=3")
	w := b.start(100*time.Millisecond, 157)
	for _, v := range w.history(atLeast(3, 157))[157] {
		assert.Equal(t, []any{statusOK, 0.0}, []any{v.status, v.f})
	}
	w.stop()
	b.driver("unsupported", "0", "err_instant_field=0")
}

// The first profiling value is blank, because a value needs two readings.
func TestPromiseOfTheFirstProfilingValue(t *testing.T) {
	b := newBench(t)
	w := b.start(100*time.Millisecond, 1002, 1003)
	defer w.stop()
	list := w.history(atLeast(3, 1003))[1003]
	_, ok := list[0].number()
	assert.False(t, ok)
	_, ok = list[2].number()
	assert.True(t, ok)
}

// A counter that the driver refreshes every 250 ms has the time of the reading, unless NVML states
// when it changed: then readings of a period follow 1 µs apart from there on.
func TestPromiseOfARefreshedCounter(t *testing.T) {
	b := newBench(t)
	b.driver("refresh", 250_000, "refresh=0.25")
	w := b.start(50*time.Millisecond, 156)
	list := w.history(atLeast(15, 156))[156]
	equal := 0
	for i := range list[1:] {
		if list[i].i == list[i+1].i {
			equal++
			assert.Greater(t, list[i+1].ts-list[i].ts, int64(10_000), "the time of the reading")
		}
	}
	assert.Greater(t, equal, 5, "most readings repeat a value")
	w.stop()
	b.driver("stamped", 1, "stamped=1")
	w = b.start(50*time.Millisecond, 156)
	repeated := func(values map[uint16][]rawValue) bool {
		list := values[156]
		for i := 2; i < len(list); i++ {
			if list[i].i == list[i-2].i && list[i].ts == list[i-2].ts+2 {
				return true
			}
		}
		return false
	}
	w.history(repeated)
	w.stop()
	b.driver("stamped", 0, "stamped=0", "refresh=0")
}

// A lost board has plain blanks, and no group accepts it.
func TestPromiseOfALostBoard(t *testing.T) {
	b := newBench(t)
	w := b.start(100*time.Millisecond, 155, 203)
	w.history(atLeast(1, 203))
	b.driver("lost", 1, "lost=1")
	values := w.history(atLeast(40, 155))[155]
	require.Eventually(t, func() bool { return b.status(0) == statusLost }, time.Minute, 20*time.Millisecond)
	for _, v := range values[20:] {
		assert.Equal(t, []any{statusOK, blankDouble}, []any{v.status, v.f})
	}
	w.stop()
	_, err := b.createGroup("otelgpu-test", []entity{{entityGPU, 0}})
	assert.ErrorContains(t, err, "GPU is lost")
	b.driver("lost", 0, "lost=0")
	require.Eventually(t, func() bool { return b.status(0) == 1 }, time.Minute, 20*time.Millisecond)
	w = b.start(100*time.Millisecond, 203)
	defer w.stop()
	w.history(func(values map[uint16][]rawValue) bool {
		return slices.ContainsFunc(values[203], func(v rawValue) bool { return v.status == statusOK && v.i < blankInt })
	})
}

// A field is read at the shortest interval of its watchers. Watching again from the same connection
// replaces interval, also by a slower one, and one removal ends several watches.
func TestPromiseOfWatches(t *testing.T) {
	b, other := newBench(t), newBench(t)
	slow := b.start(time.Hour, 203)
	fast := other.start(50*time.Millisecond, 203)
	slow.history(atLeast(5, 203))
	fast.stop()
	again := b.start(50*time.Millisecond, 203)
	slow.history(atLeast(10, 203))
	require.NoError(t, b.watch(slow.group, slow.fields, time.Hour.Microseconds(), 60))
	n := len(slow.history(atLeast(1, 203))[203])
	witness := other.start(50*time.Millisecond, 100)
	witness.history(atLeast(6, 100))
	assert.LessOrEqual(t, len(slow.history(atLeast(1, 203))[203]), n+1, "the slower interval counts for both")
	again.stop()
	witness.stop()
	assert.NoError(t, b.destroyFieldGroup(slow.fields))
	assert.NoError(t, b.destroyGroup(slow.group))
}

// Names of field groups are unique in an engine, unknown fields and too many are refused.
func TestPromiseOfFieldGroups(t *testing.T) {
	b, other := newBench(t), newBench(t)
	name := fmt.Sprintf("otelgpu-name-%d", os.Getpid())
	g, err := b.createFieldGroup(name, []uint16{203})
	require.NoError(t, err)
	_, err = other.createFieldGroup(name, []uint16{100})
	assert.ErrorContains(t, err, "Duplicate Key")
	require.NoError(t, b.destroyFieldGroup(g))
	for _, ids := range [][]uint16{{203, 7}, slices.Repeat([]uint16{203}, 128)} {
		_, err = b.createFieldGroup(name, ids)
		assert.ErrorContains(t, err, "Bad parameter")
	}
}
