// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/freeport"
)

const (
	rightSpan = `{"resourceSpans":[{"scopeSpans":[{"scope":{"attributes":[{"key":"hw.id","value":{"stringValue":"GPU-1"}}]},
		"spans":[{"traceId":"01000000000000000000000000000001","spanId":"0100000000000001","name":"gemm",
		"startTimeUnixNano":"1764000000000000000","endTimeUnixNano":"1764000000001000000",
		"attributes":[{"key":"gpu.operation.type","value":{"stringValue":"kernel"}}]}]}]}]}`
	wrongLine = `span "gemm": attribute gpu.operation.type: "gemm" is not one of `
)

var wrongSpan = strings.Replace(rightSpan, `"kernel"`, `"gemm"`, 1)

func check(t *testing.T, in string, args ...string) (out string, err error) {
	t.Helper()
	cmd := newCheckCommand()
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetArgs(append([]string{}, args...)) // nil would select the arguments of the test binary
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.Execute()
	return b.String(), err
}

func TestCheckNamesDeviations(t *testing.T) {
	dir := t.TempDir()
	right, wrong := filepath.Join(dir, "right.json"), filepath.Join(dir, "wrong.json")
	require.NoError(t, os.WriteFile(right, []byte(rightSpan), 0o600))
	require.NoError(t, os.WriteFile(wrong, []byte(rightSpan+"\n"+wrongSpan), 0o600))

	out, err := check(t, "", right)
	require.NoError(t, err)
	assert.Equal(t, "1 spans (1 GPU-related), 0 metric points, 0 log records: no violations\n", out)

	out, err = check(t, "", right, wrong)
	require.ErrorIs(t, err, errReported)
	assert.True(t, strings.HasPrefix(out, wrong+":5: "+wrongLine), out)
	assert.Contains(t, out,
		"\n3 spans (3 GPU-related), 0 metric points, 0 log records: 1 violations of 1 kinds\n")

	out, err = check(t, wrongSpan, "-")
	require.ErrorIs(t, err, errReported)
	assert.True(t, strings.HasPrefix(out, "standard input:1: "+wrongLine), out)
}

func TestCheckReportsUnreadableInput(t *testing.T) {
	_, err := check(t, "")
	require.EqualError(t, err, "nothing to check (specify a file, - for standard input, or --listen)")
	out, err := check(t, "", filepath.Join(t.TempDir(), "none.json"))
	require.ErrorContains(t, err, "none.json\": no such file")
	require.Empty(t, out)
	_, err = check(t, "hello", "-")
	require.ErrorContains(t, err, "cannot read standard input as JSON after line 1")
	_, err = check(t, "", "--listen=nowhere")
	require.EqualError(t, err, "`--listen` must be HOST:PORT, found \"nowhere\"")
	_, err = check(t, "", "--listen=127.0.0.1:65535")
	require.EqualError(t, err, "`--listen` must have a port of 1 to 65534, found \"65535\"")
	_, err = check(t, "", "--listen=127.0.0.1:4317", "x.json")
	require.EqualError(t, err, `cannot check "x.json" while listening (use either FILE or --listen)`)
	_, err = check(t, "", "--listen", "127.0.0.1:65535")
	require.EqualError(t, err, "`--listen` must have a port of 1 to 65534, found \"65535\"", "also without =")
}

func TestCheckStoppedAtItsStartKeepsReceivedData(t *testing.T) {
	grpc, _, err := freeport.Pair()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := newCheckCommand()
	cmd.SetContext(ctx)
	require.NoError(t, checkListen(cmd, grpc, 0, &conformance.Report{Spans: 1}))
	require.ErrorContains(t, checkListen(cmd, grpc, 0, &conformance.Report{}), "cannot listen at "+grpc)
}

func TestCheckNamesAPortThatIsTaken(t *testing.T) {
	grpc, web, err := freeport.Pair()
	require.NoError(t, err)
	taken, err := net.Listen("tcp", web)
	require.NoError(t, err)
	defer taken.Close()
	require.EqualError(t, run([]string{"check", "--listen", grpc}),
		"cannot listen at "+grpc+" and "+web+": the port is in use (set --listen HOST:PORT)")
}

func TestCheckTakesLiveTelemetry(t *testing.T) {
	grpc, web, err := freeport.Pair()
	require.NoError(t, err)
	cmd := newCheckCommand()
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs([]string{"--listen", grpc})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	ctx, cancel := context.WithCancel(t.Context())
	cmd.SetContext(ctx)
	done := make(chan error)
	go func() { done <- cmd.Execute() }()
	for _, span := range []string{rightSpan, wrongSpan} {
		require.Eventually(t, func() bool {
			resp, err := http.Post("http://"+web+"/v1/traces", "application/json", strings.NewReader(span))
			if err != nil {
				return false
			}
			_ = resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		}, time.Minute, 10*time.Millisecond)
	}
	cancel()
	require.ErrorIs(t, <-done, errReported)
	assert.True(t, strings.HasPrefix(b.String(), wrongLine), b.String())
	assert.Contains(t, b.String(),
		"2 spans (2 GPU-related), 0 metric points, 0 log records: 1 violations of 1 kinds")
}
