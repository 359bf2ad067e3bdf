// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package semconvtest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/semconv"
)

// ours says whether a name is in one of the namespaces that the registry governs.
func ours(name string) bool {
	for _, p := range []string{"gpu.", "gpuspan.", "hw."} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// checkAttributes checks the attributes of one thing; place is a word of the registry's `on`, where names the thing.
func checkAttributes(attrs pcommon.Map, place, where string) error {
	var errs []error
	for name, v := range attrs.All() {
		if !ours(name) {
			continue
		}
		if err := checkAttribute(name, v, place); err != nil {
			errs = append(errs, fmt.Errorf("%s: attribute %s: %w", where, name, err))
		}
	}
	return errors.Join(errs...)
}

func checkAttribute(name string, v pcommon.Value, place string) error {
	a, ok := semconv.LookupAttribute(name)
	if !ok {
		return errors.New("not in the registry")
	}
	if !slices.Contains(a.On, place) {
		return fmt.Errorf("on a %s (the registry allows %s)", place, strings.Join(a.On, ", "))
	}
	if err := checkType(a, v); err != nil {
		return err
	}
	for _, s := range texts(v) {
		if s == "" {
			return errors.New("empty (what is unknown is absent)")
		}
		if len(a.Members) > 0 && !a.Open && !slices.Contains(a.Members, s) {
			return fmt.Errorf("%q is none of %s", s, strings.Join(a.Members, ", "))
		}
	}
	return nil
}

func checkType(a semconv.Attribute, v pcommon.Value) error {
	element := map[semconv.Type]pcommon.ValueType{semconv.TypeStrings: pcommon.ValueTypeStr, semconv.TypeInts: pcommon.ValueTypeInt}
	if want, list := element[a.Type]; list {
		if v.Type() != pcommon.ValueTypeSlice {
			return fmt.Errorf("%s, want %s", v.Type(), a.Type)
		}
		if v.Slice().Len() == 0 {
			return errors.New("empty (what is unknown is absent)")
		}
		for _, e := range v.Slice().All() {
			if e.Type() != want {
				return fmt.Errorf("an element is %s, want %s", e.Type(), a.Type)
			}
		}
		return nil
	}
	scalar := map[semconv.Type]pcommon.ValueType{
		semconv.TypeString: pcommon.ValueTypeStr, semconv.TypeInt: pcommon.ValueTypeInt,
		semconv.TypeDouble: pcommon.ValueTypeDouble, semconv.TypeBoolean: pcommon.ValueTypeBool,
	}
	if v.Type() != scalar[a.Type] {
		return fmt.Errorf("%s, want %s", v.Type(), a.Type)
	}
	if v.Type() == pcommon.ValueTypeDouble && !finite(v.Double()) {
		return fmt.Errorf("%v is not finite", v.Double())
	}
	return nil
}

func texts(v pcommon.Value) []string {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return []string{v.Str()}
	case pcommon.ValueTypeSlice:
		var out []string
		for _, e := range v.Slice().All() {
			out = append(out, texts(e)...)
		}
		return out
	}
	return nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
