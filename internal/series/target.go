// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"crypto/sha256"
	"slices"

	"github.com/google/uuid"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// Targets finds the resource of metrics that are derived from spans. Prometheus makes labels of the
// service and its instance only, so metrics of two resources that agree in these would be one
// series there, with two values at one time, and it rejects the whole request. It is not safe for
// concurrent use; the zero value is ready.
type Targets struct {
	Kept []string // attributes of spans' resources that metrics keep; none: all

	names []string
	key   []byte
}

// instanceNames are the attributes that identify an instance of a service in the semantic
// conventions.
var instanceNames = [...]string{
	string(semconv.ServiceNameKey), string(semconv.ServiceInstanceIDKey), "service.namespace",
}

// Key returns a key that is equal for the resources of one instance: resources with the same
// service.instance.id, whatever else has changed (as a container's ID does after a restart), or,
// without it, with the same kept attributes in any order. It is valid until the next call.
func (t *Targets) Key(attrs pcommon.Map) []byte {
	t.names = t.names[:0]
	for k := range attrs.All() {
		if len(t.Kept) == 0 || slices.Contains(t.Kept, k) {
			t.names = append(t.names, k)
		}
	}
	if t.instance(attrs) {
		t.names = slices.DeleteFunc(t.names, func(k string) bool { return !slices.Contains(instanceNames[:], k) })
	}
	return t.text(attrs)
}

// Whole returns a key that is equal for resources with the same attributes. It is valid until the
// next call.
func (t *Targets) Whole(attrs pcommon.Map) []byte {
	t.names = t.names[:0]
	for k := range attrs.All() {
		t.names = append(t.names, k)
	}
	return t.text(attrs)
}

// text returns the attributes with the given names as a text, in a fixed order.
func (t *Targets) text(attrs pcommon.Map) []byte {
	slices.Sort(t.names)
	t.key = t.key[:0]
	for _, k := range t.names {
		v, _ := attrs.Get(k)
		t.key = append(append(t.key, k...), 0)
		t.key = append(append(t.key, spanfacts.Valid(v.AsString(), maxText)...), 0)
	}
	if len(t.key) > maxText { // keys are stored
		sum := sha256.Sum256(t.key)
		t.key = append(t.key[:0], sum[:]...)
	}
	return t.key
}

// Resources are stored for as long as their services run, thousands of them, and a sender may write
// megabytes on one.
const (
	maxText     = 1 << 10
	maxResource = 16 * maxText
)

// instance reports whether the metrics keep a service.instance.id of the spans.
func (t *Targets) instance(attrs pcommon.Map) bool {
	v, ok := attrs.Get(string(semconv.ServiceInstanceIDKey))
	return ok && v.AsString() != "" && slices.Contains(t.names, string(semconv.ServiceInstanceIDKey))
}

// instanceNamespace is the namespace of service.instance.id in the semantic conventions.
var instanceNamespace = uuid.MustParse("4d63009a-8d0f-11ee-aad7-4c796ed8e320")

// Attributes returns the attributes that metrics keep, and the service.instance.id to add to them.
// The latter is a hash of the key, which must be the one of the last call, as the semantic
// conventions recommend. It is empty if attrs has one, and if only the service's name and namespace
// are known, which Prometheus has as job. Values are truncated to 1 KiB, and attributes beyond 16
// KiB in total are omitted, except the names of the instance. Names and values become valid UTF-8.
func (t *Targets) Attributes(attrs pcommon.Map) (kept pcommon.Map, instance string) {
	kept = pcommon.NewMap()
	own, service, namespace := false, false, false
	room := maxResource
	for k, v := range attrs.All() {
		if len(t.Kept) > 0 && !slices.Contains(t.Kept, k) {
			continue
		}
		text := v.AsString()
		room -= len(k) + min(len(text), maxText)
		if room < 0 && !slices.Contains(instanceNames[:], k) {
			continue
		}
		if len(text) > maxText {
			kept.PutStr(k, spanfacts.Valid(text, maxText))
		} else {
			v.CopyTo(kept.PutEmpty(k))
		}
		switch attribute.Key(k) {
		case semconv.ServiceNameKey:
			service = true
		case "service.namespace":
			namespace = true
		default:
			own = true
		}
	}
	spanfacts.ValidMap(kept)
	own = own || namespace && !service // without a name there is no job
	if own && !t.instance(attrs) {
		instance = uuid.NewSHA1(instanceNamespace, t.key).String()
	}
	return kept, instance
}
