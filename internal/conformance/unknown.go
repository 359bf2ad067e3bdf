// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"
	"sync"

	"github.com/otelgpu/otelgpu/semconv"
)

var attributeNames = sync.OnceValue(func() (out []string) {
	for _, a := range semconv.Attributes() {
		out = append(out, a.Name)
	}
	return out
})

var metricNames = sync.OnceValue(func() (out []string) {
	for _, m := range semconv.Metrics() {
		out = append(out, m.Name)
	}
	return out
})

var eventNames = sync.OnceValue(func() (out []string) {
	for _, e := range semconv.Events() {
		out = append(out, e.Name)
	}
	return out
})

// unknown says why a name is not in the registry: it is a namespace, it has a name for a namespace, or nobody knows it;
// then the remedy is the name that it may be a misspelling of.
func unknown(name string, known []string) (what, remedy string) {
	what = "not in the registry"
	best, distance := "", len(name)/3+1
	for _, k := range known {
		if template, _, ok := strings.Cut(k, "<"); ok && strings.HasPrefix(name, template) {
			return what, "what stands for the last part of " + k + " is one lower_snake word"
		}
	}
	for _, k := range known {
		switch {
		case strings.HasPrefix(k, name+"."):
			return "is a namespace, of " + k, "a name is never also a namespace; use one of the names below it"
		case strings.HasPrefix(name, k+"."):
			return "has the name " + k + " for a namespace", "a name is never also a namespace"
		}
		if d := editDistance(name, k, distance); d < distance {
			best, distance = k, d
		}
	}
	switch {
	case best != "":
		remedy = "did you mean " + best + "?"
	case strings.HasPrefix(name, "hw."):
		remedy = "names of OpenTelemetry's hardware conventions, or a namespace of your own"
	default:
		remedy = "use a namespace of your own, or a name of docs/semconv.md"
	}
	return what, remedy
}

// editDistance is Levenshtein's distance of two texts, or limit where it is not below that.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}
