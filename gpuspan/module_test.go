// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/otelgpu/otelgpu/gpuspan/internal/require"
)

// What go.mod requires, directly or not, is in the module graph of every user, so it is only what is built with a
// package of this module outside of its tests.
func TestModulesThatOnlyTestsUseAreNotRequired(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...").Output()
	require.NoError(t, err)
	built := map[string]bool{}
	for module := range strings.FieldsSeq(string(out)) {
		built[module] = true
	}
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	required := regexp.MustCompile(`(?m)^\t(\S+) v\S+( // indirect)?$`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(required), 10)
	for _, m := range required {
		require.True(t, built[m[1]], "go.mod requires %s, which only tests import", m[1])
	}
	require.NotRegexp(t, `sdk/metric|testify|goleak|gonum|rapid`, string(text))
}
