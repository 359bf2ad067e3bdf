// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
)

// ruleAnswer is the result of one rule.
type ruleAnswer struct {
	Rule    string `json:"rule"` // name
	Kind    string `json:"kind"` // alert or record
	Expr    string `json:"expr"`
	Error   string `json:"error,omitempty"`
	Results int    `json:"results"` // series that a recording rule wrote
	// Firing alerts, which were pending for the time of `for`.
	Alerts []firing `json:"alerts,omitempty"`
}

type firing struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Value       float64           `json:"value"`
}

// rules serves GET /rules?file=&time=: Prometheus' own parser of rule files and its own rules.
// Recording rules write at the given time. An alert is evaluated then, and again after the time of
// `for`, during which the data stays constant.
func (s *server) rules(r *http.Request) (any, error) {
	at, err := timeOf(r)
	if err != nil {
		return nil, err
	}
	parsed, errs := rulefmt.ParseFile(r.FormValue("file"), false, model.UTF8Validation, s.parser, slog.Default())
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var out []ruleAnswer
	for _, g := range parsed.Groups {
		for _, rule := range g.Rules {
			a := ruleAnswer{Rule: rule.Record + rule.Alert, Expr: rule.Expr, Kind: "alert"}
			expr, err := s.parser.ParseExpr(rule.Expr)
			switch {
			case err != nil:
			case rule.Record != "":
				a.Kind = "record"
				a.Results, err = s.record(r.Context(), rule, expr, at)
			default:
				a.Alerts, err = s.alert(r.Context(), rule, expr, at)
			}
			if err != nil {
				a.Error = err.Error()
			}
			out = append(out, a)
		}
	}
	return out, nil
}

func (s *server) record(ctx context.Context, rule rulefmt.Rule, expr parser.Expr, at time.Time) (int, error) {
	v, err := rules.NewRecordingRule(rule.Record, expr, labels.FromMap(rule.Labels)).Eval(
		ctx, 0, at, rules.EngineQueryFunc(s.engine, s.db), nil, 0)
	if err != nil {
		return 0, err
	}
	app := s.db.Appender(ctx)
	for _, x := range v {
		if _, err := app.Append(0, x.Metric, at.UnixMilli(), x.F); err != nil {
			return 0, errors.Join(err, app.Rollback())
		}
	}
	return len(v), app.Commit()
}

func (s *server) alert(ctx context.Context, rule rulefmt.Rule, expr parser.Expr, at time.Time) ([]firing, error) {
	ask := rules.EngineQueryFunc(s.engine, s.db)
	held := func(ctx context.Context, q string, _ time.Time) (promql.Vector, error) { return ask(ctx, q, at) }
	hold := time.Duration(rule.For)
	x := rules.NewAlertingRule(rule.Alert, expr, hold, time.Duration(rule.KeepFiringFor), labels.FromMap(rule.Labels),
		labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.Default())
	for _, ts := range []time.Time{at, at.Add(hold)} {
		if _, err := x.Eval(ctx, 0, ts, held, nil, 0); err != nil {
			return nil, err
		}
	}
	var out []firing
	x.ForEachActiveAlert(func(a *rules.Alert) {
		if a.State == rules.StateFiring {
			out = append(out, firing{a.Labels.Map(), a.Annotations.Map(), number(a.Value)})
		}
	})
	return out, nil
}
