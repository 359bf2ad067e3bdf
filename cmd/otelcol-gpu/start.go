// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.opentelemetry.io/collector/confmap"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// welcome prints a few lines on what runs: the listeners and their addresses, the page, and the
// devices, as soon as they are known. It reads the Collector's own log at any level, because the
// Collector announces these events nowhere else. It receives the configuration as a converter and
// does not change it.
type welcome struct {
	out io.Writer

	mu      sync.Mutex
	conf    map[string]any
	ready   bool
	devices map[string]string // the line of each gpu receiver, once it is known
	said    map[string]bool   // of it
}

const (
	readyMessage  = "Everything is ready. Begin running and processing data."
	openedMessage = "GPU source opened"
	noneMessage   = "GPU source does not respond"
	failedMessage = "error found during service initialization" // it is the program's last line as well
)

func (w *welcome) options() []zap.Option {
	return []zap.Option{
		zap.WrapCore(func(c zapcore.Core) zapcore.Core { return listener{Core: c, w: w} }),
		zap.AddStacktrace(zapcore.FatalLevel), // errors state the remedy themselves
	}
}

func (w *welcome) Convert(_ context.Context, conf *confmap.Conf) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conf = conf.ToStringMap()
	return nil
}

func (w *welcome) configuration() map[string]any {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conf
}

// listener is a zap core that reads entries at level info even if they are not logged. It writes
// nothing.
type listener struct {
	zapcore.Core
	w         *welcome
	component string // name of its logger
}

func (l listener) Enabled(level zapcore.Level) bool {
	return level == zapcore.InfoLevel || l.Core.Enabled(level)
}

func (l listener) With(fields []zapcore.Field) zapcore.Core {
	return listener{l.Core.With(fields), l.w, cmp.Or(text(fields, "otelcol.component.id"), l.component)}
}

// text returns a field's value, "" if there is none.
func text(fields []zapcore.Field, key string) string {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(enc)
	}
	if v, ok := enc.Fields[key]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

func (l listener) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	switch e.Message {
	case readyMessage:
		l.w.start()
	case openedMessage, noneMessage:
		ce = ce.AddCore(e, l)
	case failedMessage:
		return ce
	}
	if l.Core.Enabled(e.Level) {
		ce = l.Core.Check(e, ce)
	}
	return ce
}

// Write reads the fields of entries about devices.
func (l listener) Write(e zapcore.Entry, fields []zapcore.Field) error {
	line := "none found, retrying (OTELGPU_LOG_LEVEL=info logs the reason; OTELGPU_SOURCE=simulated simulates one)"
	switch {
	case e.Message == openedMessage:
		line = text(fields, "devices") + " from " + text(fields, "source")
	case e.Level >= zapcore.WarnLevel: // of a source named in the configuration
		line = "none found, retrying (the warning above has the reason)"
	}
	l.w.source(l.component, line)
	return nil
}

func (w *welcome) source(receiver, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.devices[receiver] = line
	if w.ready {
		w.sayDevices()
	}
}

// sayDevices prints lines on devices that were not printed yet; mu is held.
func (w *welcome) sayDevices() {
	for _, receiver := range slices.Sorted(maps.Keys(w.devices)) {
		if !w.said[receiver] {
			w.said[receiver] = true
			fmt.Fprintf(w.out, "  GPUs      %s\n", w.devices[receiver])
		}
	}
}

func (w *welcome) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ready {
		return
	}
	w.ready = true
	fmt.Fprintf(w.out, "Everything is ready: otelcol-gpu %s. Press Ctrl-C to stop.\n", version)
	for _, l := range w.listeners() {
		fmt.Fprintf(w.out, "  %-9s %s\n", l[0], l[1])
	}
	w.sayDevices()
	// For a service of Type=notify. If NOTIFY_SOCKET is set but nothing reads it, the program
	// continues.
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
}

// listeners returns the kind and address of each listener in the configuration; mu is held.
func (w *welcome) listeners() (lines [][2]string) {
	// part returns the configuration at a path of keys.
	part := func(path ...string) map[string]any {
		m := w.conf
		for _, key := range path {
			m, _ = m[key].(map[string]any)
		}
		return m
	}
	endpoint := func(of any) string {
		m, _ := of.(map[string]any)
		s, _ := m["endpoint"].(string)
		return s
	}
	var in, page, metrics []string
	for _, id := range slices.Sorted(maps.Keys(part("receivers"))) {
		if kind, _, _ := strings.Cut(id, "/"); kind != "otlp" {
			continue
		}
		for _, protocol := range []string{"grpc", "http"} {
			if at := endpoint(part("receivers", id, "protocols")[protocol]); at != "" {
				in = append(in, strings.Replace(protocol, "http", "HTTP", 1)+" "+at)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(part("exporters"))) {
		at := endpoint(part("exporters")[id])
		switch kind, _, _ := strings.Cut(id, "/"); {
		case at == "":
		case kind == "gpu_page":
			page = append(page, "http://"+at)
		case kind == "prometheus":
			metrics = append(metrics, "http://"+at+"/metrics")
		}
	}
	for _, l := range []struct {
		kind string
		at   []string
	}{{"OTLP in", in}, {"page", page}, {"metrics", metrics}} {
		if len(l.at) > 0 {
			lines = append(lines, [2]string{l.kind, strings.ReplaceAll(strings.Join(l.at, ", "), "grpc ", "gRPC ")})
		}
	}
	return lines
}
