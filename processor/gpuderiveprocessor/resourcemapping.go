// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"slices"
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// ResourceConfig copies one attribute of a resource.
type ResourceConfig struct {
	// From is the producer's attribute.
	From string `mapstructure:"from"`
	// To is one of otelgpu's attributes of resources; it decides the type. An existing one is kept.
	To string `mapstructure:"to"`
	// Group is an attribute whose value follows a copied text after a slash, if the resource has it: ranks
	// are numbered within groups of workers, which are compared separately. Default none.
	Group string `mapstructure:"group"`
	_     struct{}
}

func (r *ResourceConfig) validate(key string) error {
	var bad configvalidate.List
	target, ok := semconv.LookupAttribute(r.To)
	bad.If(!ok || !slices.Contains(target.On, "resource"),
		"`%s::to` must be a resource attribute of the registry (docs/semconv), found %q", key, r.To)
	bad.If(r.From == "", "`%s::from` must not be empty", key)
	return bad.Err()
}

// copy sets the target if the resource lacks it and has the source. A decimal text is a number, too:
// values that passed through OTEL_RESOURCE_ATTRIBUTES are texts.
func (r *ResourceConfig) copy(attrs pcommon.Map) {
	from, ok := attrs.Get(r.From)
	if _, exists := attrs.Get(r.To); !ok || exists {
		return
	}
	switch target, _ := semconv.LookupAttribute(r.To); target.Type {
	case semconv.TypeInt:
		if n, err := strconv.ParseInt(from.AsString(), 10, 64); err == nil && n >= 0 {
			attrs.PutInt(r.To, n)
		}
	case semconv.TypeString:
		if text := from.AsString(); text != "" {
			if group, ok := attrs.Get(r.Group); ok && r.Group != "" {
				text += "/" + group.AsString()
			}
			attrs.PutStr(r.To, spanfacts.Clip(text))
		}
	}
}
