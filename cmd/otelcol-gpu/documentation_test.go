// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/otelcol"
)

// Every configuration in a document that has a service runs as it is pasted.
func TestConfigurationsOfTheDocumentationAreComplete(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	found := 0
	require.NoError(t, filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range block.FindAllSubmatch(text, -1) {
			yaml := string(m[1])
			if !strings.Contains("\n"+yaml, "\nservice:") {
				continue
			}
			found++
			c, err := otelcol.NewCollector(settings(yaml))
			require.NoError(t, err)
			err = c.DryRun(t.Context())
			if strings.Contains(yaml, "\n  prometheus:\n    config:") { // the receiver, which is in the full build only
				require.ErrorContains(t, err, `unknown type: "prometheus"`, path)
				continue
			}
			assert.NoError(t, err, path)
		}
		return nil
	}))
	assert.GreaterOrEqual(t, found, 8)
}
