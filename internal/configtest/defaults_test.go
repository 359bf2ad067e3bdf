// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package configtest_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/configschema"
)

var (
	documentedDefault = regexp.MustCompile("`([a-z0-9_]+)` \\(default:? ([^)]*)\\)")
	tableDefault      = regexp.MustCompile("^\\| `([a-z0-9_]+)`(?: in `([a-z0-9_]+)`)? \\| ([^|]*) \\|")
	quoted            = regexp.MustCompile("`([^`]*)`")
	listedKeys        = regexp.MustCompile("^( *)- ((?:`[a-z0-9_]+`(?:, )?)+)")
)

// documentedDefaults compares each "`key` (default `X`)" of the section "Configuration", and each
// row of its table of keys and defaults, with the schema. A key in a nested list is one of the key
// that the list belongs to. Defaults in words, such as "none" or "all", are not compared, unless
// the schema states a number or a duration.
func documentedDefaults(t *testing.T, node *configschema.Node, section string) {
	t.Helper()
	var parents []string // by depth of the list
	compared := 0
	for line := range strings.SplitSeq(section, "\n") {
		if m := tableDefault.FindStringSubmatch(line); m != nil {
			if at := node.Keys()[m[2]]; at != nil {
				checkDefault(t, at, m[1], m[3])
			} else {
				checkDefault(t, node, m[1], m[3])
			}
			compared++
		}
		depth := len(parents)
		if m := listedKeys.FindStringSubmatch(line); m != nil {
			depth = len(m[1]) / 2
			first := quoted.FindStringSubmatch(m[2])[1]
			parents = append(parents[:min(depth, len(parents))], first)
		}
		for _, m := range documentedDefault.FindAllStringSubmatch(line, -1) {
			at := node
			for _, p := range parents[:min(depth, len(parents))] {
				if next := at.Keys()[p]; next != nil {
					at = next
				}
			}
			checkDefault(t, at, m[1], m[2])
			compared++
		}
	}
	assert.Positive(t, compared, "the section Configuration states no default")
}

func checkDefault(t *testing.T, in *configschema.Node, key, text string) {
	t.Helper()
	field := in.Keys()[key]
	if field == nil || field.External() {
		return // of the Collector
	}
	if problem := wrongDefault(field, text); problem != "" {
		assert.Fail(t, fmt.Sprintf("README: `%s` has %s", key, problem))
	}
}

func wrongDefault(field *configschema.Node, text string) string {
	var values []string
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		values = append(values, m[1])
	}
	want := fmt.Sprint(field.Default)
	number := field.Duration || field.Kind == configschema.Integer || field.Kind == configschema.Number ||
		field.Kind == configschema.Boolean
	switch {
	case field.Optional:
		return "" // on or off; the keys below have their own defaults
	case len(values) == 0 && number && field.Default != nil && !isZero(want):
		return fmt.Sprintf("no default in backquotes, the code has %s", want)
	case len(values) == 0:
		return ""
	case field.Kind == configschema.Array:
		separator := func(r rune) bool { return strings.ContainsRune("[], ", r) }
		for v := range strings.FieldsFuncSeq(strings.Join(values, " "), separator) {
			if !strings.Contains(want, v) {
				return fmt.Sprintf("the default %s, the code has %s", v, want)
			}
		}
		return ""
	case field.Default == nil && isZero(values[0]):
		return ""
	case !sameValue(values[0], want):
		return fmt.Sprintf("the default %s, the code has %s", values[0], want)
	}
	return ""
}

func isZero(v string) bool { return slices.Contains([]string{"0", "0s", "", "false", "[]"}, v) }

func sameValue(a, b string) bool {
	x, errX := time.ParseDuration(a)
	y, errY := time.ParseDuration(b)
	if errX == nil && errY == nil {
		return x == y
	}
	f, errF := strconv.ParseFloat(a, 64)
	g, errG := strconv.ParseFloat(b, 64)
	if errF == nil && errG == nil {
		return fmt.Sprint(f) == fmt.Sprint(g)
	}
	return a == b
}
