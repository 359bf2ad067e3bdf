// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each picture in docs/images of the page, or of what the program prints, has a file with titles in
// it. A title that the page no longer has means that the picture is old.
func TestThePicturesSayWhatThePageSays(t *testing.T) {
	var product strings.Builder
	sources, err := filepath.Glob("assets/*")
	require.NoError(t, err)
	for _, of := range []string{"ncclinspector", "flightrecorder", "finding"} { // pictures of what convert prints
		more, err := filepath.Glob(filepath.Join("..", of, "*.go"))
		require.NoError(t, err)
		sources = append(sources, more...)
	}
	for _, path := range sources {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		product.Write(b)
	}
	titles, err := filepath.Glob("../../docs/images/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, titles)
	for _, path := range titles {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		for title := range strings.Lines(string(b)) {
			assert.True(t, strings.Contains(product.String(), strings.TrimSpace(title)), "%s is of an older version (make pictures): %s",
				path, title) // without the whole page in the message
		}
	}
}
