// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"log/slog"
	"slices"
	"strings"
)

// Log writes the summary to a logger: one record for each operation, loop and finding, at level info (findings: warn).
// Keys are those of CSV's columns, for the first run and the rest with first_ and rest_ before them; what is not known
// is absent.
func (s Summary) Log(ctx context.Context, l *slog.Logger) {
	log := func(level slog.Level, message string, attrs ...slog.Attr) {
		l.LogAttrs(ctx, level, message, slices.DeleteFunc(attrs, func(a slog.Attr) bool { return !isKnown(a) })...)
	}
	for i := range s.Operations {
		o := &s.Operations[i]
		attrs := o.attrs("all", &o.All)
		attrs[0].Key = "operation"
		if o.First.Duration.Count > 0 && o.Rest.Duration.Count > 0 {
			attrs = append(append(attrs, part("first_", o.attrs("first", &o.First))...),
				part("rest_", o.attrs("rest", &o.Rest))...)
		}
		log(slog.LevelInfo, "gpu operation", attrs...)
	}
	for i := range s.Loops {
		lp := &s.Loops[i]
		attrs := append([]slog.Attr{slog.String("loop", lp.Name), slog.Int64("steps", lp.Steps)},
			durationAttrs("step_", lp.Duration)...)
		for _, p := range lp.Phases {
			attrs = append(attrs, slog.Float64("phase_"+p.Name+"_seconds", p.Duration.Total.Seconds()))
		}
		attrs = append(attrs, slog.Float64("overlap_seconds", lp.Overlap.Seconds()),
			slog.Float64("other_seconds", lp.Other.Seconds()), known("mfu", lp.MFU))
		if t := lp.Duration.Total.Seconds(); t > 0 {
			attrs = append(attrs, known("items_per_second", float64(lp.Items)/t))
		}
		log(slog.LevelInfo, "gpu loop", attrs...)
	}
	for _, f := range s.Findings(Thresholds{}) {
		log(slog.LevelWarn, "gpu finding", slog.String("kind", string(f.Kind)), slog.String("subject", f.Subject),
			slog.Float64("value", f.Value), slog.Float64("threshold", f.Threshold), slog.String("evidence", f.Evidence))
	}
}

// part are the mean and the rates, under names of their own.
func part(prefix string, attrs []slog.Attr) (out []slog.Attr) {
	for _, a := range attrs {
		if a.Key == "mean_seconds" || strings.HasSuffix(a.Key, "_per_second") {
			out = append(out, slog.Attr{Key: prefix + a.Key, Value: a.Value})
		}
	}
	return out
}
