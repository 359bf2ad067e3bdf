// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
	"github.com/otelgpu/otelgpu/semconv"
)

// Document is the content of findings.json: what the text and the page state, for programs.
// docs/findings.schema.json describes it.
type Document struct {
	Format   string            `json:"format"`
	Version  int               `json:"version"` // changes if a field changes its meaning or is removed
	Jobs     []JobDocument     `json:"jobs"`
	Profiles []ProfileDocument `json:"profiles"`

	Collectives []CollectivesDocument `json:"collectives,omitempty"`
}

// CollectivesDocument is what dumps of PyTorch's flight recorder or files of NCCL Inspector show.
type CollectivesDocument struct {
	Path     string            `json:"path"` // of the folder; empty: files of several ones
	Findings []finding.Finding `json:"findings"`
}

// JobDocument is a job of several ranks.
type JobDocument struct {
	jobs.Job
	Findings []finding.Finding `json:"findings"`
}

// ProfileDocument is a file.
type ProfileDocument struct {
	File    string           `json:"file"`
	Devices []DeviceDocument `json:"devices"`
	Host    *finding.Finding `json:"host,omitempty"` // of a profile without activities of a device
	Notes   []string         `json:"notes,omitempty"`
	Partial bool             `json:"partial,omitempty"`
}

// DeviceDocument is the time account of a device and its steps, with the findings.
type DeviceDocument struct {
	Ordinal  int64             `json:"ordinal"`
	Model    string            `json:"model,omitempty"`
	Window   int64             `json:"window_ns"`
	Parts    facts.Parts       `json:"parts"`
	Idle     []facts.CauseTime `json:"idle,omitempty"`
	Steps    []facts.Step      `json:"steps,omitempty"`
	Findings []finding.Finding `json:"findings"`
}

const (
	findingsFile    = "findings.json"
	findingsFormat  = "otelgpu.findings"
	findingsVersion = 1
)

// document returns what was found.
func (r *conversion) document(found []jobs.Job) Document {
	doc := Document{
		Format: findingsFormat, Version: findingsVersion, Jobs: []JobDocument{}, Profiles: []ProfileDocument{},
		Collectives: r.Collectives,
	}
	for i := range found {
		doc.Jobs = append(doc.Jobs, JobDocument{found[i], found[i].Findings()})
	}
	for _, p := range r.profiles {
		if p.skipped != "" {
			continue
		}
		x := ProfileDocument{
			File: p.file, Host: p.got.Host, Notes: p.got.Odd, Partial: p.got.Partial, Devices: []DeviceDocument{},
		}
		for i := range p.got.Devices {
			d := &p.got.Devices[i]
			x.Devices = append(x.Devices, DeviceDocument{
				d.Ordinal, d.Model, int64(d.Window), d.Parts, d.Idle, d.ByStep, d.Findings,
			})
		}
		doc.Profiles = append(doc.Profiles, x)
	}
	return doc
}

func (r *conversion) writeFindings(found []jobs.Job) error {
	text, err := json.MarshalIndent(r.document(found), "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(r.results.tmp, findingsFile), append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", findingsFile, r.results.named(err))
	}
	return nil
}

// RunCollectives writes the results of a run without profiles, if there is a folder for them.
func RunCollectives(out, problems io.Writer, o Options) error {
	r := &conversion{Options: o, problems: problems}
	if o.Out != "" {
		results, err := newResults(o.Out)
		if err != nil {
			return err
		}
		defer results.remove()
		r.results = results
		if err := r.writeFindings(nil); err != nil {
			return err
		}
		if _, err := results.publish(); err != nil {
			return err
		}
		fmt.Fprintf(out, "\n%s\n    the findings as JSON\n", printable.Line(filepath.Join(o.Out, findingsFile)))
	}
	doc := r.document(nil)
	return r.failing(&doc)
}

// Condition is a finding with which a run fails.
type Condition struct {
	Kind  string
	Share float64 // least share; 0: any that is reported
}

// ParseCondition returns the condition of a text KIND or KIND:SHARE; shares are from 0 to 1, or in
// percent.
func ParseCondition(text string) (Condition, error) {
	kind, share, has := strings.Cut(text, ":")
	if _, ok := semconv.LookupFindingKind(kind); !ok {
		return Condition{}, fmt.Errorf("unknown kind of finding %q (docs/finding-kinds.md lists them)", kind)
	}
	c := Condition{Kind: kind}
	if !has {
		return c, nil
	}
	number, percent := strings.CutSuffix(share, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return c, fmt.Errorf("share %q of %s must be from 0 to 1, or from 0%% to 100%%", share, kind)
	}
	c.Share = v
	return c, nil
}

// ErrFound is the error of a run whose results are complete and meet a condition of Options.FailOn.
var ErrFound = errors.New("a finding meets --fail-on")

// failing reports findings that meet a condition.
func (r *conversion) failing(doc *Document) error {
	failed := false
	check := func(where string, list ...finding.Finding) {
		for _, v := range list {
			for _, c := range r.FailOn {
				if v.Kind == c.Kind && v.Share >= c.Share {
					failed = true
					r.complain(fmt.Errorf("%s: %s of %s is %.3g %%, which --fail-on forbids", where, v.Kind, v.Subject, 100*v.Share))
				}
			}
		}
	}
	for i := range doc.Jobs {
		check("job of "+strconv.Itoa(len(doc.Jobs[i].Ranks))+" ranks", doc.Jobs[i].Findings...)
	}
	for _, c := range doc.Collectives {
		check(c.Path, c.Findings...)
	}
	for _, p := range doc.Profiles {
		if p.Host != nil {
			check(p.File, *p.Host)
		}
		for _, d := range p.Devices {
			check(p.File, d.Findings...)
		}
	}
	if failed {
		return ErrFound
	}
	return nil
}
