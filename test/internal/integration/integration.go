// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package integration marks the tests that build, download or start third-party servers, such as
// Jaeger, Prometheus and Kafka.
package integration

import (
	"os"
	"strings"
	"testing"
)

// Variable is the environment variable that turns these tests on. make test-integration sets it.
const Variable = "OTELGPU_INTEGRATION"

// Prefix starts the name of each of these tests, so that go test -run finds them.
const Prefix = "TestIntegration"

// Need skips the test unless integration tests are on. It fails the test if its name has another
// prefix.
func Need(t *testing.T) {
	t.Helper()
	if !strings.HasPrefix(t.Name(), Prefix) {
		t.Fatalf("%s needs a server of others: its name must start with %s (make test-integration runs these)",
			t.Name(), Prefix)
	}
	if os.Getenv(Variable) == "" {
		t.Skip("real servers run in make test-integration (" + Variable + "=1)")
	}
}
