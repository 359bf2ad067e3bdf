// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ring_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/capturetest"
	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver/internal/ring"
)

const everyKind = ring.KindKernel | ring.KindCopy | ring.KindMemset | ring.KindContext

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, path string) *ring.Ring {
	t.Helper()
	r, err := ring.Open(path)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

// window requests a window and waits until it is open.
func window(t testing.TB, r *ring.Ring, length time.Duration, budget uint64) uint32 {
	t.Helper()
	n, err := r.Request(length, everyKind, budget)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		s, err := r.State()
		require.NoError(t, err)
		return s.Open || s.Answered == n
	}, time.Minute, 100*time.Microsecond)
	return n
}

func answered(t testing.TB, r *ring.Ring, n uint32) ring.State {
	t.Helper()
	var s ring.State
	require.Eventually(t, func() bool {
		var err error
		s, err = r.State()
		require.NoError(t, err)
		return s.Answered == n
	}, time.Minute, time.Millisecond)
	return s
}

type read struct {
	kind     ring.Kind
	name     string
	corr     uint32
	duration uint64
}

func all(t testing.TB, r *ring.Ring) (out []read) {
	t.Helper()
	_, err := r.Read(math.MaxInt, func(rec ring.Record) {
		name, _ := r.Name(rec.Name())
		out = append(out, read{rec.Kind(), name, rec.Correlation(), rec.End() - rec.Start()})
	})
	require.NoError(t, err)
	return out
}

func TestWithoutAWindowNothingOfCUPTIIsCalled(t *testing.T) {
	p := capturetest.Start(t, t.TempDir(), "OTEL_SERVICE_NAME=llm", "OTEL_RESOURCE_ATTRIBUTES=a=b,c=d")
	r := open(t, p.Ring())
	p.Do("push " + parent)
	p.Do("launch 100 k")
	p.Do("pop")
	assert.Equal(t, "0", p.Do("calls"))
	assert.Equal(t, "2", p.Do("threads"), "the program's and one that sleeps")
	c, err := r.Counts()
	require.NoError(t, err)
	assert.Zero(t, c)
	st, err := os.Stat(p.Ring())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	assert.EqualValues(t, p.PID, r.Info.PID)
	assert.Equal(t, "host", r.Info.Command)
	assert.EqualValues(t, os.Getuid(), r.Info.UID)
	assert.Equal(t, "llm", r.Info.Service)
	assert.Equal(t, "a=b,c=d", r.Info.Resource)
	assert.Empty(t, r.Devices())
}

func TestWindowHasKernelsWithTheirLaunches(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	r := open(t, p.Ring())
	p.Do("launch 100 before")
	n := window(t, r, time.Minute, 1000)
	p.Do("launch 200 first")
	p.Do("push " + parent)
	inside := p.Do("launch 300 second")
	p.Do("push none")
	p.Do("launch 400 third")
	p.Do("pop")
	p.Do("pop")
	p.Do("launch 500 first")
	require.NoError(t, r.Cancel(n))
	s := answered(t, r, n)
	assert.False(t, s.Open || s.Refused)
	p.Do("launch 600 after")

	var kernels []string
	contexts := map[string]string{}
	_, err := r.Read(math.MaxInt, func(rec ring.Record) {
		switch rec.Kind() {
		case ring.Kernel:
			name, ok := r.Name(rec.Name())
			assert.True(t, ok)
			kernels = append(kernels, fmt.Sprint(name, " ", rec.End()-rec.Start()))
			assert.Equal(t, [3]uint32{4, 1, 1}, rec.Grid())
			assert.Equal(t, [3]uint32{128, 1, 1}, rec.Block())
		case ring.Context:
			pushed, ok := r.Pushed(rec.A())
			require.True(t, ok)
			contexts[strconv.Itoa(int(rec.Correlation()))] = hex.EncodeToString(pushed.TraceID[:]) + hex.EncodeToString(
				pushed.SpanID[:])
		}
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"first 200", "second 300", "third 400", "first 500"}, kernels)
	assert.Equal(t, map[string]string{
		inside: "4bf92f3577b34da6a3ce929d0e0e473600f067aa0ba902b7",
	}, contexts, "the third has none: its own hides the outer one")
}

func TestWindowsAreMarkedByTheClocks(t *testing.T) {
	for name, stub := range map[string]string{"with a clock of the tool's": "", "with CUPTI's own clock": "noclock"} {
		t.Run(name, func(t *testing.T) {
			var env []string
			if stub != "" {
				env = append(env, "OTELGPU_CUPTI_LIBRARY="+capturetest.Build(t).CUPTINoClock)
			}
			p := capturetest.Start(t, t.TempDir(), env...)
			r := open(t, p.Ring())
			before := time.Now()
			answered(t, r, window(t, r, 30*time.Millisecond, 10))
			after := time.Now()
			var marks []ring.Record
			_, err := r.Read(math.MaxInt, func(rec ring.Record) { marks = append(marks, append(ring.Record(nil), rec...)) })
			require.NoError(t, err)
			require.Len(t, marks, 2)
			assert.Equal(t, []ring.Kind{ring.WindowBegin, ring.WindowEnd}, []ring.Kind{marks[0].Kind(), marks[1].Kind()})
			for _, m := range marks {
				assert.EqualValues(t, 1, m.B())
				wall := time.Unix(0, int64(m.End()))
				assert.True(t, wall.After(before) && wall.Before(after))
				if stub == "" {
					assert.Less(t, time.Duration(m.Start()-m.A()).Abs(), time.Hour, "CUPTI's clock is the monotonic one")
				} else {
					assert.Greater(t, m.A()-m.Start(), uint64(time.Hour))
				}
			}
			assert.GreaterOrEqual(t, marks[1].Start()-marks[0].Start(), uint64(30*time.Millisecond))
		})
	}
}

func TestOtherCUPTISubscribersHavePrecedence(t *testing.T) {
	for env, want := range map[string]ring.State{
		"CUPTI_STUB_BUSY=1": {
			Refused: true, Reason: ring.ReasonBusy, Answered: 1, CUPTI: 18,
			Message: "another profiler is active in this process: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
		},
		"CUPTI_STUB_VERSION=12": {
			Refused: true, Reason: ring.ReasonNoCUPTI, Answered: 1, CUPTI: 12,
			Message: "libcupti is of version 12; this library reads the records of CUDA 11, 12 and 13",
		},
		"CUPTI_STUB_VERSION=140000": {
			Refused: true, Reason: ring.ReasonNoCUPTI, Answered: 1, CUPTI: 140000,
			Message: "libcupti is of version 140000; this library reads the records of CUDA 11, 12 and 13",
		},
		"CUPTI_STUB_DEAD=1": {
			Refused: true, Reason: ring.ReasonCUPTIError, Answered: 1, CUPTI: 18,
			Message: "cannot subscribe to CUPTI: CUPTI_ERROR_NOT_INITIALIZED",
		},
	} {
		t.Run(env, func(t *testing.T) {
			p := capturetest.Start(t, t.TempDir(), env)
			r := open(t, p.Ring())
			assert.Equal(t, want, answered(t, r, window(t, r, time.Second, 10)))
			assert.Empty(t, all(t, r))
			assert.NotEmpty(t, p.Do("launch 1 k"), "the program goes on")
		})
	}
}

// The process stores its state before it acknowledges the request, so a reader that sees the
// acknowledgment sees the state.
func TestAnswerHasItsOwnState(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	path := p.Ring()
	p.Kill()
	r := open(t, path)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	page, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	defer func() { _ = syscall.Munmap(page) }()
	reason, answers := (*atomic.Uint32)(unsafe.Pointer(&page[584])), (*atomic.Uint32)(unsafe.Pointer(&page[580]))
	const windows = 1_000_000
	go func() {
		for n := range uint32(windows) {
			reason.Store(n + 1)
			answers.Store(n + 1)
		}
	}()
	for s := (ring.State{}); s.Answered < windows; {
		s, err = r.State()
		require.NoError(t, err)
		require.GreaterOrEqual(t, uint32(s.Reason), s.Answered)
	}
}

func TestWithoutCUPTIItReportsIt(t *testing.T) {
	p := capturetest.Start(t, t.TempDir(), "OTELGPU_CUPTI_LIBRARY=/nowhere/libcupti.so")
	r := open(t, p.Ring())
	s := answered(t, r, window(t, r, time.Second, 10))
	assert.True(t, s.Refused)
	assert.Equal(t, ring.ReasonNoCUPTI, s.Reason)
	assert.Contains(t, s.Message, "cannot open libcupti: /nowhere/libcupti.so")
	assert.Contains(t, s.Message, "set OTELGPU_CUPTI_LIBRARY")
}

func TestABudgetEndsTheWindow(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	r := open(t, p.Ring())
	n := window(t, r, time.Minute, 100)
	p.Do("fresh 500")
	s := answered(t, r, n)
	assert.Equal(t, ring.ReasonBudget, s.Reason)
	c, err := r.Counts()
	require.NoError(t, err)
	assert.EqualValues(t, 102, c.Records, "the budget and two marks")
	assert.LessOrEqual(t, c.DroppedBudget, uint64(400), "records before the window closed")
	assert.Len(t, all(t, r), 102)
}

func TestAFullRingDropsTheNewestAndCounts(t *testing.T) {
	p := capturetest.Start(t, t.TempDir(), "OTELGPU_CAPTURE_RECORDS=256")
	r := open(t, p.Ring())
	n := window(t, r, time.Minute, 1<<30)
	p.Do("fresh 1000")
	require.NoError(t, r.Cancel(n))
	answered(t, r, n)
	got := all(t, r)
	c, err := r.Counts()
	require.NoError(t, err)
	assert.EqualValues(t, 256, c.Records)
	assert.EqualValues(t, 1002-256, c.DroppedFull)
	require.Len(t, got, 256)
	assert.Equal(t, "kernel_number_254_with_a_longer_name", got[255].name)
}

func TestManyAndLongNamesAreBounded(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	r := open(t, p.Ring())
	n := window(t, r, time.Minute, 1<<30)
	p.Do("long 1000000")
	p.Do("fresh 60000")
	require.NoError(t, r.Cancel(n))
	answered(t, r, n)
	named, unnamed := 0, 0
	for _, x := range all(t, r) {
		switch {
		case x.kind != ring.Kernel:
		case x.name == "":
			unnamed++
		default:
			named++
			assert.LessOrEqual(t, len(x.name), 4096)
		}
	}
	c, err := r.Counts()
	require.NoError(t, err)
	assert.Equal(t, 60001, named+unnamed)
	assert.EqualValues(t, unnamed, c.NamesDropped)
	assert.Greater(t, named, 5000)
}

func TestThreadsKeepTheirContextsApart(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	r := open(t, p.Ring())
	n := window(t, r, time.Minute, 1<<30)
	p.Do("workers " + parent)
	require.NoError(t, r.Cancel(n))
	answered(t, r, n)
	kernels, contexts := map[uint32]bool{}, map[uint32]uint64{}
	_, err := r.Read(math.MaxInt, func(rec ring.Record) {
		switch rec.Kind() {
		case ring.Kernel:
			kernels[rec.Correlation()] = true
		case ring.Context:
			contexts[rec.Correlation()] = rec.A()
		}
	})
	require.NoError(t, err)
	assert.Equal(t, 8000, len(kernels))
	assert.Equal(t, 8000, len(contexts))
	threads, numbers := map[uint32]int{}, map[uint64]bool{}
	for _, number := range contexts {
		pushed, ok := r.Pushed(number)
		require.True(t, ok)
		threads[pushed.Thread]++
		numbers[number] = true
	}
	assert.Equal(t, 8000, len(numbers), "each push has a unique number")
	assert.Len(t, threads, 8)
	for _, n := range threads {
		assert.Equal(t, 1000, n)
	}
}

func TestAForkedChildHasNoRing(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	r := open(t, p.Ring())
	n := window(t, r, time.Minute, 1000)
	assert.Equal(t, "child 0", p.Do("fork"))
	p.Do("launch 5 parent_kernel")
	require.NoError(t, r.Cancel(n))
	answered(t, r, n)
	assert.Equal(t, []read{{ring.Kernel, "parent_kernel", 1, 5}}, all(t, r)[1:2])
	assert.True(t, r.Alive())
}

func TestEndsOfTheProcess(t *testing.T) {
	dir := t.TempDir()
	p := capturetest.Start(t, dir)
	path := p.Ring()
	r := open(t, path)
	n := window(t, r, time.Minute, 1000)
	p.Do("launch 5 k")
	require.NoError(t, r.Cancel(n))
	answered(t, r, n)
	require.True(t, r.Alive())
	require.True(t, strings.HasPrefix(p.Do("exec"), "ready "))
	assert.False(t, r.Alive(), "the ring of the program before exec has no writer")
	assert.Len(t, all(t, r), 3, "what it wrote can be read")
	require.Eventually(t, func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "*.ring"))
		return len(found) == 2 || len(found) == 1 && found[0] != path
	}, time.Minute, time.Millisecond)
	second := open(t, p.Ring())
	assert.True(t, second.Alive())
	p.Kill()
	require.Eventually(t, func() bool { return !second.Alive() }, time.Minute, time.Millisecond)

	// The next process removes files that were read or never written to.
	third := capturetest.Start(t, dir)
	found, err := filepath.Glob(filepath.Join(dir, "*.ring"))
	require.NoError(t, err)
	assert.Equal(t, []string{third.Ring()}, found)
}

// The lock shows whether a process lives, not its ID, which has no meaning in another namespace.
func TestAProcessInANamespaceOfItsOwn(t *testing.T) {
	p := capturetest.StartIn(t, t.TempDir(), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	r := open(t, p.Ring())
	assert.EqualValues(t, 1, r.Info.PID)
	assert.True(t, r.Alive())
	n := window(t, r, time.Minute, 1000)
	p.Do("launch 5 k")
	require.NoError(t, r.Cancel(n))
	answered(t, r, n)
	assert.Len(t, all(t, r), 3)
	p.Kill()
	require.Eventually(t, func() bool { return !r.Alive() }, time.Minute, time.Millisecond)
}

func TestANewReaderContinuesWhereTheLastOneWasKilled(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	first := open(t, p.Ring())
	n := window(t, first, time.Minute, 1000)
	p.Do("launch 5 one")
	require.Eventually(t, func() bool { return len(all(t, first)) > 0 }, time.Minute, time.Millisecond)
	p.Do("launch 5 two")
	second := open(t, p.Ring())
	require.NoError(t, second.Cancel(n))
	answered(t, second, n)
	names := ""
	for _, x := range all(t, second) {
		names += x.name + " "
	}
	assert.Contains(t, names, "two")
	// The window of a reader that does not return ends by itself, and the next request is served.
	require.Eventually(t, func() bool { s, _ := second.State(); return !s.Open }, time.Minute, time.Millisecond)
}

func TestTheLibraryFindsTheProcessesOwnCUPTI(t *testing.T) {
	dir := filepath.Dir(capturetest.Build(t).CUPTI)
	p := capturetest.Start(t, t.TempDir(), "OTELGPU_CUPTI_LIBRARY=", "HOST_NO_STUB=1", "LD_LIBRARY_PATH="+dir)
	r := open(t, p.Ring())
	s := answered(t, r, window(t, r, 10*time.Millisecond, 10))
	assert.False(t, s.Refused, s.Message)
	assert.EqualValues(t, 18, s.CUPTI)
}

func TestMissingFolderAndFullDisk(t *testing.T) {
	p := capturetest.Start(t, "/nowhere/at/all")
	require.Eventually(t, func() bool { // its output arrives separately from its responses
		return strings.Contains(p.Stderr(), "otelgpu capture: off: the folder /nowhere/at/all is not there")
	}, time.Minute, time.Millisecond)
	assert.Equal(t, "0", p.Do("calls"))
	assert.Equal(t, "ok", p.Do("push "+parent))
	assert.Equal(t, "1", p.Do("threads"))
}

func TestForeignFilesAreRefused(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	whole, err := os.ReadFile(p.Ring())
	require.NoError(t, err)
	write := func(t *testing.T, at int, v uint64) string {
		b := append([]byte(nil), whole[:8192]...)
		binary.LittleEndian.PutUint64(b[at:], v)
		path := filepath.Join(t.TempDir(), "x.ring")
		require.NoError(t, os.WriteFile(path, b, 0o600))
		require.NoError(t, os.Truncate(path, int64(len(whole))))
		return path
	}
	u32 := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(whole[at:])) }
	for name, c := range map[string]struct {
		at   int
		v    uint64
		want string
	}{
		"another magic":        {0, 1, "not a ring of libotelgpu_capture.so: it begins with"},
		"a newer format":       {8, 7 | u32(12)<<32, "format 7, this Collector reads 1"},
		"unfinished":           {200, 0, "it is not finished"},
		"short records":        {16, 8 | u32(20)<<32, "its layout exceeds its size"},
		"records past the end": {24, 1 << 40, "its layout exceeds its size"},
		"a capacity of 3":      {32, 3, "its layout exceeds its size"},
		"a huge capacity":      {32, 1 << 63, "its layout exceeds its size"},
		"no contexts":          {48, 0, "its layout exceeds its size"},
		"names past the end":   {64, 1 << 62, "its layout exceeds its size"},
		"records in the head":  {24, 8, "its layout exceeds its size"},
		"another user's":       {72, u32(72) | (u32(76)+1)<<32, "but its header names user"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ring.Open(write(t, c.at, c.v))
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("a link", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "l.ring")
		require.NoError(t, os.Symlink(p.Ring(), link))
		_, err := ring.Open(link)
		require.ErrorContains(t, err, "too many levels of symbolic links")
	})
	t.Run("too short", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s.ring")
		require.NoError(t, os.WriteFile(path, whole[:100], 0o600))
		_, err := ring.Open(path)
		require.ErrorContains(t, err, "100 bytes long")
	})
	t.Run("a folder", func(t *testing.T) {
		_, err := ring.Open(t.TempDir())
		require.Error(t, err)
	})
}

func TestAFileCutUnderTheReaderIsAnError(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	whole, err := os.ReadFile(p.Ring())
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.ring")
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	r := open(t, path)
	require.NoError(t, os.Truncate(path, 0))
	_, err = r.State()
	require.ErrorIs(t, err, ring.ErrBroken)
	_, err = r.Read(math.MaxInt, func(ring.Record) {})
	require.ErrorIs(t, err, ring.ErrBroken)
	_, err = r.Request(time.Second, 1, 1)
	require.ErrorIs(t, err, ring.ErrBroken)
	_, ok := r.Name(0)
	assert.False(t, ok)
	_, ok = r.Pushed(1)
	assert.False(t, ok)
}

func TestRangesOfNVTXWithIdsAreSpans(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	r := open(t, p.Ring())
	require.Equal(t, "1", p.Do("nvtx"))
	n := window(t, r, time.Minute, 1000)
	want := map[string]string{}
	launch := func(trace, span string) { want[p.Do("launch 10 k")] = trace + span }
	p.Do("range request traceparent=" + parent)
	launch("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
	p.Do("domain inner")
	launch("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
	p.Do("domain op trace_id=0af7651916cd43dd8448eb211c80319c span_id=b7ad6b7169203331")
	launch("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
	p.Do("domainpop")
	launch("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
	p.Do("domainpop")
	p.Do("rangepop")
	unattached := p.Do("launch 10 k")
	require.NoError(t, r.Cancel(n))
	answered(t, r, n)
	got := map[string]string{}
	_, err := r.Read(math.MaxInt, func(rec ring.Record) {
		if rec.Kind() == ring.Context {
			pushed, ok := r.Pushed(rec.A())
			require.True(t, ok)
			got[strconv.Itoa(int(rec.Correlation()))] = hex.EncodeToString(pushed.TraceID[:]) + hex.EncodeToString(
				pushed.SpanID[:])
		}
	})
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.NotContains(t, got, unattached)
}

func TestAFullFileSystemIsReported(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	p := capturetest.Start(t, dir)
	r := open(t, p.Ring())
	s := answered(t, r, window(t, r, time.Second, 10))
	assert.Equal(t, ring.ReasonMemory, s.Reason)
	assert.Contains(t, s.Message, "no room for the ring's records (is /dev/shm full?")
	assert.NotEmpty(t, p.Do("launch 1 k"), "the program goes on")
}

// A reader never finds a partially written file in the folder.
func TestAFileGetsItsNameWhenItIsWhole(t *testing.T) {
	dir := t.TempDir()
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			found, _ := filepath.Glob(filepath.Join(dir, "*.ring"))
			for _, path := range found {
				r, err := ring.Open(path)
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					done <- err
					return
				}
				if err == nil {
					r.Close()
				}
			}
		}
	}()
	for range 10 {
		p := capturetest.Start(t, dir)
		p.Ring()
		p.Kill()
	}
	close(stop)
	require.NoError(t, <-done)
}

// The next process removes files of killed processes, but not files that another process may just
// have created.
func TestRemainsOfKilledProcessesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	p := capturetest.Start(t, dir)
	whole := p.Ring()
	p.Kill()
	half := filepath.Join(dir, "1-1.ring.new")
	contents, err := os.ReadFile(whole)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(half, contents[:8192], 0o600))
	fresh, old := filepath.Join(dir, "2-2.ring.new"), filepath.Join(dir, "3-3.ring.new")
	require.NoError(t, os.WriteFile(fresh, nil, 0o600))
	require.NoError(t, os.WriteFile(old, nil, 0o600))
	require.NoError(t, os.Chtimes(old, time.Time{}, time.Now().Add(-2*time.Hour)))
	capturetest.Start(t, dir)
	require.Eventually(t, func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "*.ring"))
		return len(found) == 1 && found[0] != whole
	}, time.Minute, time.Millisecond)
	assert.NoFileExists(t, half)
	assert.NoFileExists(t, old)
	assert.FileExists(t, fresh)
}
