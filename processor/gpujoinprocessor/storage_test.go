// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/pref"
)

var storageID = component.MustNewID("file_storage")

// withStorage adds a file_storage extension for dir.
func (r *rig) withStorage(dir string) *rig {
	f := filestorage.NewFactory()
	cfg := f.CreateDefaultConfig().(*filestorage.Config)
	cfg.Directory = dir
	ext, err := f.Create(context.Background(), extensiontest.NewNopSettings(f.Type()), cfg)
	require.NoError(r.t, err)
	require.NoError(r.t, ext.Start(context.Background(), r.host))
	r.host.ext[storageID] = ext
	return r
}

const (
	victimDir   = "GPU_JOIN_VICTIM_DIR"
	victimZero  = "GPU_JOIN_VICTIM_ZERO"
	victimCount = 20
)

// TestVictim is the Collector that TestQueuedBatchesSurviveKill kills; run directly, it does
// nothing.
func TestVictim(t *testing.T) {
	dir := os.Getenv(victimDir)
	if dir == "" {
		t.Skip("only as a child of TestQueuedBatchesSurviveKill")
	}
	ns, err := strconv.ParseInt(os.Getenv(victimZero), 10, 64)
	require.NoError(t, err)
	zero := time.Unix(0, ns)
	r := newRig(t).withStorage(dir).join(func(c *Config) {
		c.Queue.Storage = &storageID
		c.Settle, c.MaxWait = time.Minute, 2*time.Minute
	})
	r.device(nominal).Write(one(time.Now(), zero))
	ctx := client.NewContext(t.Context(), client.Info{Metadata: client.NewMetadata(
		map[string][]string{"tenant": {"blue"}})})
	for i := range uint64(victimCount) {
		td := newTraces("a")
		td.gpu(i+1, 0, zero.Add(sec(float64(i)*0.01)), zero.Add(sec(float64(i+1)*0.01)))
		td.scope("http").host(1000+i, 0, zero, zero.Add(time.Second))
		require.NoError(t, r.proc.ConsumeTraces(ctx, td.Traces))
	}
	fmt.Println("accepted", r.sink.SpanCount())
	time.Sleep(time.Minute) // killed here, while all GPU spans are pending
}

func TestQueuedBatchesSurviveKill(t *testing.T) {
	dir, zero := t.TempDir(), time.Now().Add(-2*time.Second)
	cmd := exec.Command(os.Args[0], "-test.run=^TestVictim$", "-test.v")
	cmd.Env = append(os.Environ(), victimDir+"="+dir, victimZero+"="+strconv.FormatInt(zero.UnixNano(), 10))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	passed := -1
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "accepted %d", &passed); n == 1 {
			break
		}
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Zero(t, passed, "all are waiting")

	// The next process gets the samples of that time (a replay of them) and the batches from
	// storage.
	r := newRig(t).withStorage(dir)
	var tenants []string
	next, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
		if pref.MarkPipelineOwnedTraces(td) { // as the service does between all components
			defer pref.UnrefTraces(td)
		}
		tenants = append(tenants, client.FromContext(ctx).Metadata.Get("tenant")...)
		return r.sink.ConsumeTraces(ctx, td)
	})
	require.NoError(t, err)
	w := r.device(nominal)
	for at := zero.Add(-time.Second); at.Before(time.Now()); at = at.Add(100 * time.Millisecond) {
		w.Write(one(at, zero))
	}
	w.Write(one(time.Now(), zero))
	r.joinTo(next, func(c *Config) {
		c.Queue.Storage = &storageID
		c.Settle, c.MaxWait = 10*time.Millisecond, time.Second
	})
	require.Eventually(t, func() bool { return r.sink.SpanCount() == 2*victimCount }, time.Minute, 10*time.Millisecond)
	// The last batch is counted after the sink has it. Fewer than 0 are shown as 0.
	held := &r.proc.(*joinProcessor).stats.held
	require.Eventually(t, func() bool { return held.Load() == 0 }, time.Minute, time.Millisecond)
	r.close()
	s := r.spans()
	require.Len(t, s, 2*victimCount)
	for id := range uint64(victimCount) {
		assert.InDelta(t, 3, energy(t, s[id+1]), 1e-6)
	}
	assert.Len(t, tenants, victimCount)
}

func TestStorageKeepsSpansRefusedAtShutdown(t *testing.T) {
	dir, zero := t.TempDir(), time.Now().Add(-time.Second)
	r := newRig(t).withStorage(dir).joinTo(consumertest.NewErr(errors.New("the backend is away")), func(c *Config) {
		c.Queue.Storage = &storageID
		c.Settle, c.MaxWait = time.Minute, 2*time.Minute
	})
	hold(r, zero)
	r.close()
	r = newRig(t).withStorage(dir)
	refused := false
	next, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
		if !refused {
			refused = true
			return errors.New("not yet")
		}
		return r.sink.ConsumeTraces(ctx, td)
	})
	require.NoError(t, err)
	r.joinTo(next, func(c *Config) {
		c.Queue.Storage = &storageID
		c.RetryOnFailure.InitialInterval = 10 * time.Millisecond
		c.Settle, c.MaxWait = 500*time.Millisecond, time.Second
	})
	require.Eventually(t, func() bool { // a batch is counted after the sink has it
		_, err := r.tel.GetMetric("otelcol_processor_gpu_join_uncovered_spans")
		return err == nil && r.count("uncovered_spans", "no_device") == 10
	}, time.Minute, 10*time.Millisecond, "spans before their device are counted")
	r.close()
	assert.Len(t, r.spans(), 10)
}

// Sample rings are lost in a restart, so pending spans must be joined before.
func TestShutdownWithStorageJoinsHeldSpans(t *testing.T) {
	dir, zero := t.TempDir(), time.Now().Add(-time.Second)
	r := newRig(t).withStorage(dir).join(func(c *Config) {
		c.Queue.Storage = &storageID
		c.Settle, c.MaxWait = time.Minute, 2*time.Minute
	})
	hold(r, zero)
	require.Zero(t, r.sink.SpanCount())
	r.close()
	s := r.spans()
	require.Len(t, s, 10)
	for id := range uint64(10) {
		assert.InDelta(t, 3, energy(t, s[id+1]), 1e-6)
	}
}

// hold sends ten consecutive spans of 10 ms on a device with 300 W.
func hold(r *rig, zero time.Time) {
	w := r.device(nominal)
	for at := time.Duration(0); at <= time.Second; at += 100 * time.Millisecond {
		w.Write(one(zero.Add(at), zero))
	}
	for i := range uint64(10) {
		td := newTraces("a")
		td.gpu(i+1, 0, zero.Add(sec(float64(i)*0.01)), zero.Add(sec(float64(i+1)*0.01)))
		r.consume(td.Traces)
	}
}
