// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

func shell(ctx context.Context, t *testing.T, script string, env ...string) *Program {
	t.Helper()
	p, err := Start(ctx, "/bin/sh", []string{"-c", script}, env)
	require.NoError(t, err)
	return p
}

// End-to-end tests depend on a program's output and exit status.
func TestAProgramIsWaitedForAndEnded(t *testing.T) {
	p := shell(t.Context(), t, `trap 'echo bye; exit 0' TERM; echo "ready $WHO" >&2; while :; do sleep 0.01; done`,
		"WHO=you")
	require.NoError(t, p.WaitFor("ready you", patience), "standard error counts")
	require.Positive(t, p.PID())
	require.NoError(t, p.Stop(patience))
	require.Contains(t, p.Output(), "bye")
	require.NoError(t, p.Stop(patience), "it has ended")
}

func TestExitStatusIsReported(t *testing.T) {
	require.NoError(t, shell(t.Context(), t, "exit 0").Wait(patience))
	p := shell(t.Context(), t, "echo no luck; exit 3")
	require.ErrorContains(t, p.WaitFor("ready", patience), `sh ended (exit status 3) before it said "ready":`)
	require.ErrorContains(t, p.Wait(patience), "sh ended with exit status 3:\nno luck")
	require.ErrorContains(t, shell(t.Context(), t, ":").WaitFor("ready", patience), "sh ended (exit status 0)")

	p = shell(t.Context(), t, "exec sleep 600")
	require.ErrorContains(t, p.WaitFor("ready", time.Millisecond), `sh did not say "ready" within 1ms`)
	require.ErrorContains(t, p.Wait(time.Millisecond), "sh did not end within 1ms", "and it was killed")

	p = shell(t.Context(), t, "exec sleep 600")
	require.NoError(t, p.Kill())
	require.ErrorContains(t, p.Wait(patience), "signal: killed")

	_, err := Start(t.Context(), "/nowhere/at/all", nil, nil)
	require.ErrorContains(t, err, "cannot start all:")
}

func TestAProgramEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := shell(ctx, t, "exec sleep 600")
	cancel()
	require.Error(t, p.Wait(patience))
}

func TestTheGoCommandsErrorsAreReported(t *testing.T) {
	out, err := Go(t.Context(), t.TempDir(), []string{"GOWORK=off", "GOFLAGS="}, "env", "GOWORK")
	require.NoError(t, err)
	require.Equal(t, "off\n", string(out))
	_, err = Go(t.Context(), t.TempDir(), nil, "no-such-command")
	require.ErrorContains(t, err, "go no-such-command: exit status 2: go no-such-command: unknown command")
}
