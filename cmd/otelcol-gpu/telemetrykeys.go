// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"

	"github.com/otelgpu/otelgpu/internal/spelling"
)

// telemetryKeys is a converter that refuses unknown exporters, processors and samplers in
// service::telemetry, on which the Collector panics: in the SDK's configuration structs the field
// for further keys is an any, not a map.
type telemetryKeys struct{}

func newTelemetryKeys() confmap.ConverterFactory {
	return confmap.NewConverterFactory(func(confmap.ConverterSettings) confmap.Converter { return telemetryKeys{} })
}

func (telemetryKeys) Convert(_ context.Context, conf *confmap.Conf) error {
	const at = "service::telemetry"
	config := reflect.TypeOf(otelconftelemetry.NewFactory().CreateDefaultConfig())
	return unknownKeys(conf.Get(at), config, at)
}

// unknownKeys returns an error for each key that a struct below t has no field for, where the field
// for further keys takes no map. The Collector reports other unknown keys.
func unknownKeys(value any, t reflect.Type, at string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var errs []error
	switch v := value.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for i, item := range v {
				errs = append(errs, unknownKeys(item, t.Elem(), at+"::"+strconv.Itoa(i)))
			}
		}
	case map[string]any:
		if t.Kind() != reflect.Struct {
			return nil
		}
		fields, closed := keysOf(t)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if f, ok := fields[key]; ok {
				errs = append(errs, unknownKeys(v[key], f, at+"::"+key))
			} else if closed {
				known := slices.Sorted(maps.Keys(fields))
				remedy := "the keys are " + strings.Join(known, ", ")
				if meant := spelling.Nearest(key, known); meant != "" {
					remedy = "use " + meant
				}
				errs = append(errs, fmt.Errorf("`%s` has the unknown key %q (%s)", at, key, remedy))
			}
		}
	}
	return errors.Join(errs...)
}

// keysOf returns the fields of a struct by key, squashed ones included, and whether it panics on
// others.
func keysOf(t reflect.Type) (fields map[string]reflect.Type, closed bool) {
	fields = map[string]reflect.Type{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		switch {
		case strings.Contains(options, "remain"):
			closed = closed || f.Type.Kind() == reflect.Interface
		case strings.Contains(options, "squash"):
			inner, panics := keysOf(f.Type)
			maps.Copy(fields, inner)
			closed = closed || panics
		case name != "-":
			fields[name] = f.Type
		}
	}
	return fields, closed
}
