// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package delivery finds settings with which a pipeline behind gpu_join can lose or repeat spans.
package delivery

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// exporter is what an exporter does with spans that its destination does not accept.
type exporter struct {
	id      string
	file    bool // writes files: has neither a queue nor retries by default
	rejects bool // returns an error to the pipeline
	drops   bool // from its queue
}

// accepting are the exporters that accept everything.
var accepting = map[string]bool{"debug": true, "nop": true, "prometheus": true, "gpu_page": true}

// files are exporters whose queue and retries are off by default.
var files = map[string]bool{"chrome_trace": true, "step_csv": true}

// usual are exporters that have a queue and retry for 5 minutes by default; others are recognized
// by their settings.
var usual = map[string]bool{"otlp": true, "otlp_grpc": true, "otlp_http": true, "otlphttp": true, "kafka": true}

// ending are connectors that make something else from spans, and accept everything.
var ending = map[string]bool{
	"gpu_metrics": true, "gpu_requests": true, "gpu_profiles": true, "span_metrics": true, "spanmetrics": true,
	"count": true, "service_graph": true, "servicegraph": true, "sum": true,
}

// buffering are processors that accept everything, and drop what is rejected behind them.
var buffering = map[string]bool{"batch": true, "tail_sampling": true, "groupbytrace": true, "group_by_trace": true}

// Warnings returns what can lose or repeat spans behind gpu_join in a configuration, with the
// settings that prevent it, in a fixed order.
func Warnings(conf map[string]any) []string {
	c := config{conf}
	var out []string
	pipelines := c.at("service", "pipelines")
	for _, id := range slices.Sorted(maps.Keys(pipelines)) {
		processors := list(pipelines[id], "processors")
		join := slices.IndexFunc(processors, func(id string) bool { return kind(id) == "gpu_join" })
		if join < 0 {
			continue
		}
		name := processors[join]
		if retry := block(c.at("processors", name), "retry_on_failure"); retry["enabled"] == false || limited(retry, false) {
			out = append(out, fmt.Sprintf("pipeline %s: %s drops spans that the next component rejects (set "+
				"`processors::%s::retry_on_failure` to {enabled: true, max_elapsed_time: 0s})", id, name, name))
		}
		w := walk{conf: c, seen: map[string]bool{}}
		w.exporters(processors[join+1:], list(pipelines[id], "exporters"), "")
		out = append(out, w.warnings(id)...)
	}
	return out
}

// walk follows spans from gpu_join to exporters.
type walk struct {
	conf    config
	seen    map[string]bool
	targets int
	found   []reached
}

// reached is an exporter, and the processor before it that drops what it rejects.
type reached struct {
	exporter
	buffer string
}

func (w *walk) exporters(processors, ids []string, buffer string) {
	for _, p := range processors {
		if buffering[kind(p)] {
			buffer = p
		}
	}
	for _, id := range ids {
		if w.conf.at("connectors", id) == nil {
			w.targets++
			if x, known := w.conf.exporter(id); known {
				w.found = append(w.found, reached{x, buffer})
			}
			continue
		}
		if ending[kind(id)] || w.seen[id] {
			w.targets++
			continue
		}
		w.seen[id] = true
		pipelines := w.conf.at("service", "pipelines")
		for _, next := range slices.Sorted(maps.Keys(pipelines)) {
			if kind(next) == "traces" && slices.Contains(list(pipelines[next], "receivers"), id) {
				w.exporters(list(pipelines[next], "processors"), list(pipelines[next], "exporters"), buffer)
			}
		}
	}
}

func (w *walk) warnings(pipeline string) (out []string) {
	for _, x := range w.found {
		at, remedy := "exporters::"+x.id, ""
		switch {
		case x.file:
			remedy = fmt.Sprintf("set `%s::sending_queue::block_on_overflow` to true and `%s::retry_on_failure` to "+
				"{enabled: true, max_elapsed_time: 0s}", at, at)
		default:
			remedy = fmt.Sprintf("set `%s::sending_queue::block_on_overflow` to true", at)
		}
		switch {
		case x.rejects && x.buffer != "":
			out = append(out, fmt.Sprintf("pipeline %s: %s drops spans that %s rejects (%s)", pipeline, x.buffer, x.id, remedy))
		case x.rejects && w.targets > 1:
			out = append(out, fmt.Sprintf("pipeline %s: when %s rejects spans, the pipeline's other exporters and "+
				"connectors receive them again (%s)", pipeline, x.id, remedy))
		}
		if x.drops {
			out = append(out, fmt.Sprintf("pipeline %s: %s drops spans that its destination does not accept for a while (set "+
				"`%s::retry_on_failure` to {enabled: true, max_elapsed_time: 0s})", pipeline, x.id, at))
		}
	}
	return out
}

// config is a configuration as decoded from YAML.
type config struct{ all map[string]any }

// at returns a block, nil if there is none.
func (c config) at(section, id string) map[string]any {
	all, _ := c.all[section].(map[string]any)
	if _, there := all[id]; !there {
		return nil
	}
	return block(all, id)
}

// exporter returns what an exporter does; known is false if that is unknown.
func (c config) exporter(id string) (x exporter, known bool) {
	cfg := c.at("exporters", id)
	_, hasQueue := cfg["sending_queue"]
	_, hasRetry := cfg["retry_on_failure"]
	x = exporter{id: id, file: files[kind(id)]}
	if accepting[kind(id)] || !x.file && !usual[kind(id)] && !hasQueue && !hasRetry {
		return x, false
	}
	queue, retry := block(cfg, "sending_queue"), block(cfg, "retry_on_failure")
	queued := (hasQueue || !x.file) && queue["enabled"] != false
	forever := retry["enabled"] != false && (hasRetry && retry["enabled"] == true || !x.file) && !limited(retry, true)
	x.drops = queued && !forever
	x.rejects = queued && queue["block_on_overflow"] != true || !queued && !forever
	return x, true
}

// limited reports whether retries end. Without a setting they do if byDefault.
func limited(retry map[string]any, byDefault bool) bool {
	limit, set := retry["max_elapsed_time"]
	if !set {
		return byDefault
	}
	return strings.Trim(fmt.Sprint(limit), "0nuµmsh") != ""
}

func block(m map[string]any, key string) map[string]any {
	b, _ := m[key].(map[string]any)
	if b == nil {
		b = map[string]any{}
	}
	return b
}

func list(pipeline any, key string) (out []string) {
	m, _ := pipeline.(map[string]any)
	all, _ := m[key].([]any)
	for _, v := range all {
		out = append(out, fmt.Sprint(v))
	}
	return out
}

func kind(id string) string {
	before, _, _ := strings.Cut(id, "/")
	return before
}
