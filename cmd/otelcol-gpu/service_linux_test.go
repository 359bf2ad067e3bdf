// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// systemd considers a service of Type=notify active when this message arrives, so everything must
// listen by then.
func TestSystemdIsNotifiedWhenEverythingListens(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify") //nolint:usetesting // a socket's path has at most 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer l.Close()
	ports, env := freePorts(t)
	p := start(t, append(env, "NOTIFY_SOCKET="+socket))
	require.NoError(t, l.SetReadDeadline(time.Now().Add(time.Minute)))
	b := make([]byte, 100)
	n, err := l.Read(b)
	require.NoError(t, err, &p.stderr)
	require.Equal(t, "READY=1", string(b[:n]))
	for _, port := range []string{ports.grpc, ports.http, ports.metrics, ports.page, ports.health, ports.telemetry} {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	require.Zero(t, p.interrupt(t))
}

// An image has neither shell nor curl, so the program checks itself, at its listen address, which
// may be all interfaces.
func TestHealthReportsWhetherTheCollectorIsReady(t *testing.T) {
	ports, env := freePorts(t)
	env = append(env, "OTELGPU_HEALTH=0.0.0.0:"+ports.health)
	before := start(t, env, "health")
	require.Equal(t, 1, before.exit(t, time.Minute))
	require.Contains(t, before.stderr.String(), "not ready")
	p := start(t, env)
	p.healthy(t, ports.health)
	require.Zero(t, start(t, env, "health").exit(t, time.Minute))
	require.Zero(t, start(t, nil, "health", "127.0.0.1:"+ports.health).exit(t, time.Minute))
	require.Zero(t, p.interrupt(t))
}
