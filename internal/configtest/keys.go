// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package configtest

import (
	"reflect"
	"strings"
)

const (
	module   = "github.com/otelgpu/otelgpu/"
	optional = "go.opentelemetry.io/collector/config/configoptional"
)

// keys are the keys that a configuration has, at any depth. Structs of the Collector's own, as of its queues, count as
// one key: their documentation is elsewhere.
func keys(cfg any) []string {
	var out []string
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(t.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if t.PkgPath() == optional {
			value, _ := t.FieldByName("value")
			walk(value.Type)
			return
		}
		if seen[t] || !strings.HasPrefix(t.PkgPath()+"/", module) {
			return
		}
		seen[t] = true
		for f := range t.Fields() {
			key, options, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
			if key != "" && key != "-" {
				out = append(out, key)
			}
			if key != "" || strings.Contains(options, "squash") {
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeOf(cfg))
	return out
}
