// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"log/slog"
	"strings"
)

// Log writes the summary to a logger: one record for each operation, loop and finding, at level info (findings: warn).
// Keys end in their unit; what is not known is absent.
func (s Summary) Log(ctx context.Context, l *slog.Logger) {
	for i := range s.Operations {
		o := &s.Operations[i]
		l.LogAttrs(ctx, slog.LevelInfo, "gpu operation", append([]slog.Attr{
			slog.String("operation", strings.Join(o.Path, " > ")),
		}, o.attrs()...)...)
	}
	for i := range s.Loops {
		lp := &s.Loops[i]
		attrs := []slog.Attr{slog.String("loop", lp.Name), slog.Int64("steps", lp.Steps)}
		attrs = appendSeconds(attrs, "step_", lp.Duration)
		for _, p := range lp.Phases {
			attrs = append(attrs, slog.Float64("phase_"+p.Name+"_seconds", p.Duration.Total.Seconds()))
		}
		attrs = append(attrs, slog.Float64("overlap_seconds", lp.Overlap.Seconds()),
			slog.Float64("other_seconds", lp.Other.Seconds()))
		if t := lp.Duration.Total.Seconds(); t > 0 {
			attrs = appendKnown(attrs, "items_per_second", float64(lp.Items)/t)
		}
		attrs = appendKnown(attrs, "mfu", lp.MFU)
		l.LogAttrs(ctx, slog.LevelInfo, "gpu loop", attrs...)
	}
	for _, f := range s.Findings(Thresholds{}) {
		l.LogAttrs(ctx, slog.LevelWarn, "gpu finding", slog.String("kind", string(f.Kind)), slog.String("subject", f.Subject),
			slog.Float64("value", f.Value), slog.Float64("threshold", f.Threshold), slog.String("evidence", f.Evidence))
	}
}

// LogValue implements slog.LogValuer: a summary as an attribute is its operations as groups by path.
func (s Summary) LogValue() slog.Value {
	attrs := []slog.Attr{slog.Float64("wall_seconds", s.Wall().Seconds())}
	for i := range s.Operations {
		o := &s.Operations[i]
		attrs = append(attrs, slog.Attr{Key: strings.Join(o.Path, ">"), Value: slog.GroupValue(o.attrs()...)})
	}
	return slog.GroupValue(attrs...)
}

func (o *Operation) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.Int64("count", o.All.Count)}
	if o.Category != "" {
		attrs = append(attrs, slog.String("category", o.Category))
	}
	attrs = appendSeconds(attrs, "", o.All.Duration)
	attrs = appendKnown(attrs, "share_of_parent", o.ShareOfParent)
	attrs = appendKnown(attrs, "share_of_total", o.ShareOfTotal)
	attrs = appendRates(attrs, "", o.All.Rates())
	if o.First.Duration.Count > 0 && o.Rest.Duration.Count > 0 {
		attrs = append(attrs, slog.Float64("first_mean_seconds", o.First.Duration.Mean.Seconds()),
			slog.Float64("rest_mean_seconds", o.Rest.Duration.Mean.Seconds()))
		attrs = appendRates(attrs, "first_", o.First.Rates())
		attrs = appendRates(attrs, "rest_", o.Rest.Rates())
	}
	attrs = appendKnown(attrs, "peak_share", o.PeakShare)
	if o.PeakOf != "" {
		attrs = append(attrs, slog.String("peak_of", o.PeakOf))
	}
	return attrs
}

func appendRates(attrs []slog.Attr, prefix string, r Rates) []slog.Attr {
	for _, v := range []struct {
		key   string
		value float64
	}{
		{"memory_read_bytes_per_second", r.MemoryRead},
		{"memory_write_bytes_per_second", r.MemoryWritten},
		{"memory_bytes_per_second", r.Memory},
		{"pcie_read_bytes_per_second", r.PCIeRead},
		{"pcie_write_bytes_per_second", r.PCIeWritten},
		{"pcie_bytes_per_second", r.PCIe},
		{"flops_per_second", r.FLOPs},
		{"items_per_second", r.Items},
	} {
		attrs = appendKnown(attrs, prefix+v.key, v.value)
	}
	return attrs
}

func appendSeconds(attrs []slog.Attr, prefix string, d Durations) []slog.Attr {
	if d.Count == 0 {
		return attrs
	}
	attrs = append(attrs, slog.Int64(prefix+"timed", d.Count), slog.Float64(prefix+"total_seconds", d.Total.Seconds()),
		slog.Float64(prefix+"min_seconds", d.Min.Seconds()), slog.Float64(prefix+"mean_seconds", d.Mean.Seconds()),
		slog.Float64(prefix+"max_seconds", d.Max.Seconds()), slog.Float64(prefix+"stddev_seconds", d.StdDev.Seconds()))
	attrs = appendKnown(attrs, prefix+"p50_seconds", d.P50.Seconds())
	return appendKnown(attrs, prefix+"p99_seconds", d.P99.Seconds())
}

func appendKnown(attrs []slog.Attr, key string, v float64) []slog.Attr {
	if v == 0 {
		return attrs
	}
	return append(attrs, slog.Float64(key, v))
}
