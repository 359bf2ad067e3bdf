// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/resend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a storage extension that outlives the follower.
type memory struct {
	component.StartFunc
	component.ShutdownFunc
	mu   sync.Mutex
	data map[string][]byte
}

func (m *memory) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return m, nil
}

func (m *memory) Get(_ context.Context, k string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data[k], nil
}

func (m *memory) Set(_ context.Context, k string, v []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data == nil {
		m.data = map[string][]byte{}
	}
	m.data[k] = v
	return nil
}

func (m *memory) Delete(_ context.Context, k string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.data, k)
	return nil
}

func (*memory) Batch(context.Context, ...*storage.Operation) error { return errors.New("not used") }

func (*memory) Close(context.Context) error { return nil }

type host struct {
	ext map[component.ID]component.Component
}

func (h host) GetExtensions() map[component.ID]component.Component { return h.ext }

// lines implements Read: every line of a file is a batch of one span, with an identifier derived
// from the whole file.
func lines(ctx context.Context, path string, emit consumer.ConsumeTracesFunc) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if string(b) == "bad" {
		return fmt.Errorf("cannot read %q", path)
	}
	for i := 0; i+1 < len(b); i += 2 {
		td := ptrace.NewTraces()
		s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetName(string(b[i]))
		s.SetTraceID(md5.Sum(b))
		if err := emit(ctx, td); err != nil {
			return err
		}
	}
	return nil
}

// sink is a consumer that records names and may reject batches.
type sink struct {
	mu    sync.Mutex
	names string
	fail  func(name string) error
}

func (s *sink) consume(_ context.Context, td ptrace.Traces) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Name()
	if s.fail != nil {
		if err := s.fail(name); err != nil {
			td.ResourceSpans().RemoveIf(func(ptrace.ResourceSpans) bool { return true }) // consumers own their data
			return err
		}
	}
	s.names += name
	return nil
}

func (s *sink) got() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names
}

func config(dir string) Config {
	c := NewProfiles("").Files
	c.Include = []string{filepath.Join(dir, "**", "*.txt")}
	c.Exclude = []string{filepath.Join(dir, "**", "not*.txt")}
	c.PollInterval, c.StableFor = 5*time.Millisecond, 0
	return c
}

func start(t *testing.T, c Config, h component.Host, s *sink) *Follower {
	f := New(c, owner, zap.NewNop(), lines, func(ctx context.Context, td ptrace.Traces) error {
		return resend.Copies(ctx, td, ptrace.NewTraces, s.consume)
	})
	require.NoError(t, f.Start(t.Context(), h))
	return f
}

func stop(t *testing.T, f *Follower) {
	require.NoError(t, f.Shutdown(context.WithoutCancel(t.Context())))
}

// write creates a file atomically, because a poll during a write would read it twice.
func write(t *testing.T, path, text string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path+".part", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".part", path))
}

func eventually(t *testing.T, s *sink, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return s.got() == want }, time.Minute, time.Millisecond, "want %q, have %q", want,
		s.got())
	time.Sleep(30 * time.Millisecond)
	require.Equal(t, want, s.got(), "nothing more comes")
}
