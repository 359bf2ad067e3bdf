// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gpucapturereceiver

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/capturetest"
	"github.com/otelgpu/otelgpu/internal/configtest"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/sinktest"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver/internal/ring"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// captureWhile opens a window while f runs, and returns the spans by name.
func captureWhile(t *testing.T, p *capturetest.Process, f func()) (map[string]ptrace.Span, Result, []ptrace.Traces) {
	t.Helper()
	spans := map[string]ptrace.Span{}
	var all []ptrace.Traces
	res := recordWhile(t, p, func(td ptrace.Traces) {
		all = append(all, td)
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					spans[s.Name()] = s
				}
			}
		}
	}, f)
	return spans, res, all
}

// recordWhile opens the first window of a process while f runs.
func recordWhile(t *testing.T, p *capturetest.Process, emit func(ptrace.Traces), f func()) Result {
	t.Helper()
	type answer struct {
		res Result
		err error
	}
	q, err := ring.Open(p.Ring())
	require.NoError(t, err)
	defer q.Close()
	done := make(chan answer, 1)
	go func() {
		res, err := Capture(t.Context(), p.PID, testConfig(p.Folder, time.Minute),
			func(_ context.Context, td ptrace.Traces) error { emit(td); return nil })
		done <- answer{res, err}
	}()
	require.Eventually(t, func() bool { s, err := q.State(); return err == nil && s.Open }, time.Minute, time.Millisecond)
	f()
	require.NoError(t, q.Cancel(1))
	a := <-done
	require.NoError(t, a.err)
	return a.res
}

func TestKernelsAreChildrenOfTheSpanThatLaunchedThem(t *testing.T) {
	p := capturetest.Start(t, t.TempDir(), "OTEL_SERVICE_NAME=llm", "OTEL_RESOURCE_ATTRIBUTES=k8s.pod.name=llm-0, a = b")
	begin := time.Now()
	spans, res, all := captureWhile(t, p, func() {
		p.Do("launch 1000000 root_kernel")
		p.Do("push " + parent)
		p.Do("launch 2000000 void request_kernel<float>(int)")
		p.Do("pop")
	})
	end := time.Now()
	assert.Equal(t, "recorded", res.Outcome, res.Message)
	assert.EqualValues(t, 2, res.Records)
	assert.EqualValues(t, 1, res.Attached)
	k := spans["request_kernel"]
	assert.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", k.TraceID().String())
	assert.Equal(t, "00f067aa0ba902b7", k.ParentSpanID().String())
	assert.Equal(t, spans["gpu capture"].TraceID(), k.Links().At(0).TraceID(), "the link leads to the window")
	assert.Equal(t, spans["gpu capture"].TraceID(), spans["root_kernel"].TraceID())
	for _, s := range []ptrace.Span{k, spans["root_kernel"]} {
		start := s.StartTimestamp().AsTime()
		assert.True(t, start.After(begin) && start.Before(end), "placed on the wall clock")
	}
	assert.Equal(t, 2*time.Millisecond, k.EndTimestamp().AsTime().Sub(k.StartTimestamp().AsTime()))
	r := all[0].ResourceSpans().At(0).Resource().Attributes().AsRaw()
	assert.Equal(t, "llm", r["service.name"])
	assert.Equal(t, "llm-0", r["k8s.pod.name"])
	assert.Equal(t, "b", r["a"])
}

// A section that began before the window has its kernels, too.
func TestSpansThatWerePushedBeforeTheWindow(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	request := "00-00000000000000000000000000000007-0000000000000007-01"
	p.Do("push " + parent)
	spans, res, _ := captureWhile(t, p, func() {
		p.Do("launch 1000 running")
		p.Do("pop")
		p.Do("launch 1000 after")
	})
	require.Empty(t, res.Dropped)
	assert.EqualValues(t, 1, res.Attached)
	assert.Equal(t, "00f067aa0ba902b7", spans["running"].ParentSpanID().String())
	assert.Equal(t, spans["gpu capture"].TraceID(), spans["after"].TraceID())

	q := capturetest.Start(t, t.TempDir())
	q.Do("batch " + parent + " " + request) // the requests' texts are gone when the window opens
	spans, _, _ = captureWhile(t, q, func() { q.Do("launch 1000 running") })
	s := spans["running"]
	assert.Equal(t, "00f067aa0ba902b7", s.ParentSpanID().String())
	assert.EqualValues(t, 1, s.DroppedLinksCount(), "one request is not among the links")
}

// PyTorch runs the backward pass in threads of its own, while the thread that called backward()
// waits for them.
func TestKernelsOfTheBackwardPass(t *testing.T) {
	for _, test := range []struct {
		name     string
		commands []string
		attached bool
	}{
		{"within a span", []string{"push " + parent}, true},
		{"within a span that was open before", []string{"push 00-11111111111111111111111111111111-1111111111111111-01", "push " + parent}, true},
		{"after an inner span", []string{"push " + parent, "push 00-11111111111111111111111111111111-1111111111111111-01", "pop"}, true},
		{"without a span", nil, false},
		{"after a span", []string{"push " + parent, "pop"}, false},
		{"within no span", []string{"push none"}, false},
		{"with spans in two threads", []string{"push " + parent, "hold"}, false},
		{"with spans in two threads before", []string{"hold", "push " + parent, "release"}, false},
		{"after spans in two threads", []string{"hold", "release", "push " + parent}, true},
		{"after an unmatched pop", []string{"pop", "push " + parent}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := capturetest.Start(t, t.TempDir())
			spans, res, _ := captureWhile(t, p, func() {
				for _, c := range test.commands {
					p.Do(c)
				}
				p.Do("backward")
			})
			require.Empty(t, res.Dropped)
			k := spans["backward_kernel"]
			if test.attached {
				assert.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", k.TraceID().String())
				assert.Equal(t, "00f067aa0ba902b7", k.ParentSpanID().String())
			} else {
				assert.Equal(t, spans["gpu capture"].TraceID(), k.TraceID())
			}
		})
	}
}

func TestKernelsHaveTheirOccupancy(t *testing.T) {
	p := capturetest.Start(t, t.TempDir(), "HOST_DRIVER="+capturetest.Build(t).Driver)
	spans, res, _ := captureWhile(t, p, func() { p.Do("launch 100000 k") })
	require.Empty(t, res.Dropped)
	device := spans["GPU 0"].Attributes().AsRaw()
	assert.Equal(t, "NVIDIA H100 80GB HBM3", device["hw.model"])
	// 4 blocks of 128 threads on 132 multiprocessors of 2,048 threads each.
	estimate := spans["k"].Attributes().AsRaw()["gpu.kernel.occupancy.estimate"]
	assert.InDelta(t, 4*128/(132*2048.0), estimate, 1e-12)
}

// The calls that launched the kernels explain why the device was idle, and are recorded once
// although the runtime calls the driver.
func TestTheWindowKnowsTheCallsThatLaunched(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	spans, res, _ := captureWhile(t, p, func() {
		for range 5 {
			p.Do("launch 100000 k")
			time.Sleep(2 * time.Millisecond)
		}
	})
	require.Empty(t, res.Dropped)
	device := spans["GPU 0"].Attributes().AsRaw()
	require.Contains(t, device, "gpu.window.idle.duration")
	assert.NotContains(t, device, "gpu.window.cause.duration.unknown")
	assert.NotContains(t, spans, "cuLaunchKernel")
}

func TestKernelsThatStillRun(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	_, res, _ := captureWhile(t, p, func() {
		p.Do("launch 50000000 short") // ends while the window waits for it
		p.Do("launch 60000000000 endless")
	})
	assert.Equal(t, map[string]int64{"unfinished": 1}, res.Dropped)
	assert.EqualValues(t, 1, res.Records)
}

func TestKernelsOfABatchLinkToItsRequests(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	request := func(i int) string { return fmt.Sprintf("00-%032x-%016x-01", i+1, i+1) }
	many := make([]string, 200)
	for i := range many {
		many[i] = request(i)
	}
	spans, res, _ := captureWhile(t, p, func() {
		p.Do("batch " + parent + " " + request(7) + " nonsense " + request(8))
		p.Do("launch 1000 few")
		p.Do("pop")
		p.Do("batch - " + strings.Join(many, " "))
		p.Do("launch 1000 many")
		p.Do("push " + parent)
		p.Do("launch 1000 inner")
		p.Do("pop")
		p.Do("pop")
		p.Do("launch 1000 none")
	})
	require.Empty(t, res.Dropped)
	served := func(s ptrace.Span) (out []string) {
		for _, l := range s.Links().All() {
			if kind, _ := l.Attributes().Get("gpu.link.type"); kind.Str() == "request" {
				out = append(out, fmt.Sprintf("00-%s-%s-01", l.TraceID(), l.SpanID()))
			}
		}
		return out
	}
	few := spans["few"]
	assert.Equal(t, []string{request(7), request(8)}, served(few))
	assert.Equal(t, "00f067aa0ba902b7", few.ParentSpanID().String())
	assert.EqualValues(t, 2, few.Attributes().AsRaw()["gpu.batch.size"])
	all := spans["many"]
	assert.Equal(t, many[:128], served(all))
	assert.EqualValues(t, 72, all.DroppedLinksCount())
	assert.EqualValues(t, 200, all.Attributes().AsRaw()["gpu.batch.size"])
	assert.Equal(t, spans["gpu capture"].TraceID(), all.TraceID(), "a batch need not have a span")
	assert.Empty(t, served(spans["inner"]))
	assert.Empty(t, served(spans["none"]))
}

func TestCUPTIClockIsConvertedToWallTime(t *testing.T) {
	p := capturetest.Start(t, t.TempDir(), "OTELGPU_CUPTI_LIBRARY="+capturetest.Build(t).CUPTINoClock)
	begin := time.Now()
	spans, _, _ := captureWhile(t, p, func() { p.Do("launch 1000 k") })
	start := spans["k"].StartTimestamp().AsTime()
	assert.True(t, start.After(begin) && start.Before(time.Now()))
}

// TestCUPTIsClockIsTheWallClockAfterAWindow reads CUPTI's clock like a later profiler in the
// process that relies on CUPTI's default, CLOCK_REALTIME.
func TestCUPTIsClockIsTheWallClockAfterAWindow(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	stamp := func() time.Time {
		ns, err := strconv.ParseInt(p.Do("stamp"), 10, 64)
		require.NoError(t, err)
		return time.Unix(0, ns)
	}
	captureWhile(t, p, func() {
		p.Do("launch 1000 k")
		assert.Less(t, stamp().Unix(), time.Now().Add(-24*time.Hour).Unix(), "the window's clock is monotonic")
	})
	require.Eventually(t, func() bool {
		begin := time.Now()
		at := stamp()
		return !at.Before(begin) && !at.After(time.Now())
	}, time.Minute, 10*time.Millisecond)
}

func TestADelayBetweenTwoClockReadsDoesNotShiftTimes(t *testing.T) {
	p := capturetest.Start(t, t.TempDir(), "CUPTI_STUB_HELD_UP=1")
	begin := time.Now()
	spans, res, _ := captureWhile(t, p, func() { p.Do("launch 1000 k") })
	start := spans["k"].StartTimestamp().AsTime()
	assert.True(t, start.After(begin) && start.Before(time.Now()))
	assert.Empty(t, res.Remark, "no clock was set")
}

func TestAClockThatIsSetDuringAWindowIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		jump   time.Duration
		placed int64 // converted time of CUPTI's 1500
		remark string
	}{
		"drift":   {20 * time.Microsecond, 11_500, ""},
		"forward": {time.Hour, 1500 + int64(time.Hour), "was set by 1h0m0s while"},
		"back":    {-time.Hour, 1500 - int64(time.Hour), "was set by -1h0m0s while"},
	} {
		w := &window{begin: clocks{1000, 1000 + int64(time.Hour), true}}
		w.end = clocks{2000, 2000 + int64(time.Hour+c.jump), true}
		var m event.Meta
		p := capturetest.Start(t, t.TempDir())
		q, err := ring.Open(p.Ring())
		require.NoError(t, err)
		w.ring, w.cfg = q, testConfig(p.Folder, time.Second)
		w.describe(&m)
		assert.Equal(t, c.placed+int64(time.Hour), m.Base+500, name)
		res, err := w.spans(t.Context(), Result{Dropped: map[string]int64{}},
			func(context.Context, ptrace.Traces) error { return nil })
		require.NoError(t, err)
		if c.remark == "" {
			assert.Empty(t, res.Remark)
		} else {
			assert.Contains(t, res.Remark, c.remark)
		}
		q.Close()
	}
}

func TestMissingProcessesAndRingsAreNamed(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(dir, time.Second)
	_, err := Capture(t.Context(), 1<<22+1, cfg, nil)
	require.EqualError(t, err, "there is no process 4194305")
	_, err = Capture(t.Context(), os.Getpid(), cfg, nil)
	require.ErrorContains(t, err, "was started without CUDA_INJECTION64_PATH=")
	p := capturetest.Start(t, t.TempDir())
	_, err = Capture(t.Context(), p.PID, cfg, nil)
	require.ErrorContains(t, err, "has no ring in "+dir+": its OTELGPU_CAPTURE_DIR is "+p.Folder+" (--folder "+p.Folder+")")

	library := filepath.Join(t.TempDir(), "lib.so")
	require.NoError(t, os.WriteFile(library, nil, 0o600))
	for _, c := range []struct {
		want        string
		environment []string
	}{
		{"names /not/there.so, which does not exist", []string{"CUDA_INJECTION64_PATH=/not/there.so"}},
		{"names there.so, which does not exist", []string{"CUDA_INJECTION64_PATH=there.so"}},
		{"has no ring in " + dir + ": it has not used CUDA yet, or the folder did not exist when it did", []string{
			"CUDA_INJECTION64_PATH=" + library, "OTELGPU_CAPTURE_DIR=" + dir + "/",
		}},
		{
			"its folder " + dir + "/none does not exist (create it before the process starts: mkdir -m 0700 " + dir + "/none)",
			[]string{"CUDA_INJECTION64_PATH=" + library, "OTELGPU_CAPTURE_DIR=" + dir + "/none"},
		},
	} {
		idle := exec.CommandContext(t.Context(), "sleep", "60")
		idle.Env = c.environment
		require.NoError(t, idle.Start())
		t.Cleanup(func() {
			_ = idle.Process.Kill()
			_ = idle.Wait()
		})
		require.Eventually(t, func() bool { // a process that has just started has none yet
			environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", idle.Process.Pid))
			return len(environment) > 0
		}, time.Minute, time.Millisecond)
		_, err = Capture(t.Context(), idle.Process.Pid, cfg, nil)
		require.ErrorContains(t, err, c.want)
	}
}

func TestTheReceiverFollowsProcesses(t *testing.T) {
	dir := t.TempDir()
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.WithoutCancel(t.Context()))) })
	set := receivertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings, set.BuildInfo.Version = tel.NewTelemetrySettings(), "1.2.3"
	core, logs := observer.New(zap.InfoLevel)
	set.Logger = zap.New(core)
	cfg := testConfig(dir, 50*time.Millisecond)
	cfg.Every = 100 * time.Millisecond
	sink := &consumertest.TracesSink{}
	r, err := newReceiver(set, cfg, sink)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.ring"), []byte("nothing"), 0o600))
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))

	p := capturetest.Start(t, dir)
	path := p.Ring()
	if filepath.Base(path) == "x.ring" {
		found, _ := filepath.Glob(filepath.Join(dir, "[0-9]*.ring"))
		path = found[0]
	}
	require.Eventually(t, func() bool {
		p.Do("launch 10 k")
		return sink.SpanCount() > 0
	}, time.Minute, time.Millisecond)
	p.Kill()
	require.Eventually(t, func() bool { _, err := os.Stat(path); return os.IsNotExist(err) }, time.Minute,
		10*time.Millisecond,
		"the ring of an ended process is removed")
	require.NoError(t, r.Shutdown(t.Context()))
	assert.Equal(t, "1.2.3", sink.AllTraces()[0].ResourceSpans().At(0).ScopeSpans().At(0).Scope().Version())
	assert.Equal(t, 1, logs.FilterMessage("ring ignored").Len(), "said once")
	assert.Contains(t, logs.FilterMessage("ring ignored").All()[0].ContextMap()["error"], "7 bytes long")
	assert.Equal(t, 1, logs.FilterMessage("the process has ended").Len())
	m, err := tel.GetMetric("otelcol_receiver_gpu_capture_windows")
	require.NoError(t, err)
	require.NotNil(t, m)
}

func TestRejectedSpansOfWindowsArriveOnce(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(dir, 50*time.Millisecond)
	cfg.Every = 100 * time.Millisecond
	p := capturetest.Start(t, dir)
	for name, sink := range map[string]*sinktest.Sink{
		"shares": {Shares: true, Reject: sinktest.First(5)}, "changes": {Changes: true, Reject: sinktest.First(5)},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := newReceiver(receivertest.NewNopSettings(metadata.Type), cfg, sink)
			require.NoError(t, err)
			require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
			require.Eventually(t, func() bool {
				p.Do("launch 10 k")
				return len(sink.Accepted()) > 0
			}, time.Minute, time.Millisecond)
			require.NoError(t, r.Shutdown(t.Context()))
			assert.NotZero(t, sink.Rejected())
			sink.Check(t, len(sink.Accepted()), false)
		})
	}
	t.Run("the next component hangs", func(t *testing.T) {
		called, release := make(chan struct{}), make(chan struct{})
		r, err := newReceiver(receivertest.NewNopSettings(metadata.Type), cfg, &sinktest.Sink{Wait: func(context.Context) error {
			called <- struct{}{}
			<-release
			return nil
		}})
		require.NoError(t, err)
		require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
		require.Eventually(t, func() bool {
			p.Do("launch 10 k")
			select {
			case <-called:
				return true
			default:
				return false
			}
		}, time.Minute, time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, r.Shutdown(ctx), sharedcomponent.ErrRunning)
		close(release)
		require.NoError(t, r.Shutdown(t.Context()))
	})
}

func TestABusyProcessIsReportedOnce(t *testing.T) {
	dir := t.TempDir()
	set := receivertest.NewNopSettings(metadata.Type)
	core, logs := observer.New(zap.WarnLevel)
	set.Logger = zap.New(core)
	cfg := testConfig(dir, 10*time.Millisecond)
	cfg.Every = 20 * time.Millisecond
	capturetest.Start(t, dir, "CUPTI_STUB_BUSY=1")
	r, err := newReceiver(set, cfg, consumertest.NewNop())
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	require.Eventually(t, func() bool { return logs.Len() > 0 }, time.Minute, time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, r.Shutdown(t.Context()))
	require.Equal(t, 1, logs.Len())
	assert.Equal(t, "another profiler is active in this process: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
		logs.All()[0].ContextMap()["reason"])
}

func TestConfigIsReadAsWritten(t *testing.T) {
	cfg, err := configtest.Load[Config](t, "gpu_capture/all", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, &Config{
		Folder: "/var/run/otelgpu", Window: 500 * time.Millisecond, Every: 10 * time.Second, Budget: 20_000,
		MaxCost: 0.01,
		Kinds:   []string{"kernel", "copy"}, MaxProcesses: 8,
		Spans: profiletrace.Options{
			Detail: emit.LevelKernels, Attributes: spanfacts.Full, Extent: link.ExtentSteps, MaxSpans: 500, MaxBytes: 1_000_000,
			MaxEvents: 2_000_000, BatchSpans: 200, MemoryMiB: 128, TempDir: "/var/tmp", ServiceName: "trainer", JobID: "job-7",
			Device: "NVIDIA L4", Resource: map[string]string{"deployment.environment.name": "prod"},
		},
	}, cfg)
}

func TestConfigIsChecked(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	require.NoError(t, cfg.Validate())
	cfg.Folder, cfg.Window, cfg.Every, cfg.Budget, cfg.MaxProcesses, cfg.Kinds = "", 2*time.Minute, time.Second, 0, 0,
		[]string{"runtime"}
	cfg.MaxCost = math.NaN()
	require.EqualError(t, cfg.Validate(), "`folder` must not be empty\n"+
		"`window` must be above 0 and at most 1m0s, found 2m0s\n"+
		"`every` must be 0 (no windows) or at least `window`, 2m0s, found 1s\n"+
		"`budget` must be from 1 to 5000000 records per second, found 0\n"+
		"`max_cost` must be above 0 and at most 1, found NaN\n"+
		"`max_processes` must be at least 1, found 0\n"+
		"`kinds` has \"runtime\", which is not one of [kernel copy memset]")
}

// hostile writes a ring with random contents after a header that may be valid, and reads as much of
// it as possible.
func hostile(t testing.TB, header, body []byte) {
	dir := t.TempDir()
	path := filepath.Join(dir, "1-1.ring")
	file := make([]byte, 8192+64*16+4096+96*256)
	copy(file[8192:], body)
	le := binary.LittleEndian
	copy(file, "OTELGPUR")
	for at, v := range map[int]uint32{8: 1, 12: 8192, 16: 96, 20: 64, 72: 1, 76: uint32(os.Getuid()), 200: 1} {
		le.PutUint32(file[at:], v)
	}
	for at, v := range map[int]uint64{24: 8192 + 64*16 + 4096, 32: 256, 40: 8192, 48: 16, 56: 8192 + 64*16, 64: 4096} {
		le.PutUint64(file[at:], v)
	}
	for i := 0; i+3 < len(header); i += 3 {
		file[(int(header[i])<<8|int(header[i+1]))%8192] = header[i+2]
	}
	require.NoError(t, os.WriteFile(path, file, 0o600))
	q, err := ring.Open(path)
	if err != nil {
		return
	}
	defer q.Close()
	q.Devices()
	cfg := testConfig(dir, time.Millisecond)
	w := &window{cfg: cfg, ring: q, request: 1, parents: map[uint32]uint64{}, pushed: map[uint64]*pushed{}}
	_, _ = q.State()
	_, _ = q.Counts()
	_, _ = q.Read(math.MaxInt, func(r ring.Record) { w.take(r, 300) })
	w.begin.set = true
	_, err = w.spans(t.Context(), Result{Dropped: map[string]int64{}},
		func(context.Context, ptrace.Traces) error { return nil })
	if err != nil {
		require.ErrorContains(t, err, "time out of range")
	}
}

func FuzzHostileRing(f *testing.F) {
	f.Add([]byte{2, 0, 255}, []byte("records"))
	f.Add([]byte{2, 0, 200, 2, 16, 255, 0, 200, 1}, make([]byte, 30000))
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 30000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	f.Add([]byte{2, 0, 255, 2, 17, 255}, noise)
	for i := 0; i < len(noise); i += 96 { // records of known kinds
		noise[i] = byte(1 + i/96%7)
	}
	f.Add([]byte{2, 0, 255, 4, 0, 1}, noise)
	f.Fuzz(func(t *testing.T, header, body []byte) { hostile(t, header, body) })
}

// rewind makes the next reader of a ring start at the oldest available record.
func rewind(b *testing.B, path string) {
	b.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(b, err)
	defer f.Close()
	header := make([]byte, 1024)
	_, err = f.ReadAt(header, 0)
	require.NoError(b, err)
	le := binary.LittleEndian
	head, room := le.Uint64(header[512:]), le.Uint64(header[32:])
	_, err = f.WriteAt(le.AppendUint64(nil, head-min(head, room)), 1024)
	require.NoError(b, err)
}

// BenchmarkRead measures copying a record from shared memory into the receiver's own.
func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	list := make([]activity, 1000)
	for i := range list {
		list[i] = activity{
			kind: "kernel", name: "k" + string(rune('a'+i%26)), start: int64(i * 100), duration: 90, stream: 7,
			correlation: int64(i),
		}
	}
	file := filepath.Join(dir, "replay")
	writeReplay(b, file, list)
	p := capturetest.Start(b, dir, "CUPTI_STUB_REPLAY="+file, "CUPTI_STUB_REPEAT=100", "CUPTI_STUB_REBASE=1")
	q, err := ring.Open(p.Ring())
	require.NoError(b, err)
	defer q.Close()
	n, err := q.Request(200*time.Millisecond, 31, 1<<40)
	require.NoError(b, err)
	require.Eventually(b, func() bool { s, _ := q.State(); return s.Answered == n }, time.Minute, time.Millisecond)
	// Reads the same records repeatedly: the writer's head stays, and the reader's tail is reset.
	records := 0
	w := &window{
		cfg: testConfig(dir, time.Second), ring: q, request: n, parents: map[uint32]uint64{},
		pushed: map[uint64]*pushed{},
	}
	b.ResetTimer()
	for b.Loop() {
		rewind(b, p.Ring())
		again, err := ring.Open(p.Ring())
		require.NoError(b, err)
		w.raw = w.raw[:0]
		k, err := again.Read(math.MaxInt, func(r ring.Record) { w.take(r, 1<<20) })
		require.NoError(b, err)
		records += k
		again.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(records), "ns/record")
}
