// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanattr

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
)

func TestInvalidUTF8IsReplacedInKeysAndValues(t *testing.T) {
	list := []string{"a", "\xff"}
	got := AppendValid([]attribute.KeyValue{attribute.Bool("first", true)}, []attribute.KeyValue{
		attribute.String("k\xff", "v\xfe\xfd"), attribute.StringSlice("list", list), attribute.Int("n", 7),
	})
	require.Equal(t, []attribute.KeyValue{
		attribute.Bool("first", true), attribute.String("k\uFFFD", "v\uFFFD"),
		attribute.StringSlice("list", []string{"a", "\uFFFD"}), attribute.Int("n", 7),
	}, got)
	require.Equal(t, []string{"a", "\xff"}, list, "the caller's slice stays as it was")
}

func TestEmptyValuesAreOmitted(t *testing.T) {
	kv := AppendStated(nil, "a", "")
	require.Empty(t, kv)
	require.Equal(t, []attribute.KeyValue{attribute.String("a", "\uFFFDx")}, AppendStated(kv, "a", "\xffx"))
}

func TestSeconds(t *testing.T) { require.Equal(t, 1.5, Seconds(1_500_000_000)) }
