// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What go.mod requires, directly or not, is in the module graph of every user. So it is only what is built with a
// package of this module outside of its tests, and what the SDK of traces requires in the same version, for then it is
// in that graph already.
func TestModulesThatOnlyTestsUseAreInTheGraphOfTheSDKAnyway(t *testing.T) {
	lines := func(args ...string) map[string]bool {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "GOWORK=off")
		out, err := cmd.Output()
		require.NoError(t, err)
		set := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			set[strings.TrimSpace(line)] = true
		}
		return set
	}
	built := lines("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
	graph := lines("mod", "graph")
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	required := regexp.MustCompile(`(?m)^\t(\S+) (v\S+)( // indirect)?$`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(required), 10)
	sdk := ""
	for _, m := range required {
		if m[1] == "go.opentelemetry.io/otel/sdk" {
			sdk = m[1] + "@" + m[2]
		}
	}
	for _, m := range required {
		module := m[1] + "@" + m[2]
		require.True(t, built[m[1]] || graph[sdk+" "+module], "only tests import %s, which %s does not require", module, sdk)
	}
	require.NotRegexp(t, `gonum|rapid`, string(text))
}
