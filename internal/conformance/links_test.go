// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	mdLink  = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noWord  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

	testName = regexp.MustCompile(`\b(?:Test|Benchmark)[A-Z]\w+`)
)

// anchors returns the anchors of a document's headings.
func anchors(text string) (list []string) {
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		plain := strings.ToLower(mdLink.ReplaceAllString(h[1], "$1"))
		list = append(list, strings.ReplaceAll(noWord.ReplaceAllString(plain, ""), " ", "-"))
	}
	return list
}

func TestLinksOfDocumentsExist(t *testing.T) {
	links := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "node_modules", "testdata"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range mdLink.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[2], ":") { // elsewhere
				continue
			}
			links++
			to, anchor, _ := strings.Cut(m[2], "#")
			target := path
			if to != "" {
				target = filepath.Join(filepath.Dir(path), to)
			}
			if !assert.True(t, exists(target), "%s: %s", path, m[2]) || anchor == "" || filepath.Ext(target) != ".md" {
				continue
			}
			there, err := os.ReadFile(target)
			if err != nil {
				return err
			}
			assert.Contains(t, anchors(string(there)), anchor, "%s: %s", path, m[2])
		}
		return nil
	}))
	assert.Greater(t, links, 200, "they are found")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// go test succeeds if a pattern matches no test, so a renamed test must be renamed in documents,
// too.
func TestTestsNamedInDocumentsExist(t *testing.T) {
	var tests []byte
	walk(t, "*_test.go", func(path string) {
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		tests = append(tests, source...)
	})
	named := 0
	walk(t, "*.md", func(path string) {
		if strings.Contains(path, "docs/adr/") || filepath.Base(path) == "CHANGELOG.md" { // records of the past
			return
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, name := range testName.FindAllString(string(text), -1) {
			named++
			assert.Contains(t, string(tests), "\nfunc "+name, path)
		}
	})
	assert.Greater(t, named, 10, "they are found")
}
