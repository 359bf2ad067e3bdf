// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	if err := run("../../..", true); err != nil {
		t.Fatal(err)
	}
}

func TestUnknownKeyIsRefused(t *testing.T) {
	_, err := parse([]byte("groups:\n  - id: x\n    type: metric\n    instrument_of: gauge\n"), "x")
	if err == nil || !strings.Contains(err.Error(), "instrument_of") {
		t.Fatalf("error %v does not name the key", err)
	}
}

func TestUnknownTypeIsRefused(t *testing.T) {
	r := &registry{Attributes: []attribute{{annotations: annotations{Type: "float"}, Name: "gpu.x"}}}
	if err := r.check(); err == nil ||
		err.Error() != `attribute gpu.x: unknown type "float" (use string, int, double, boolean, string[] or int[])` {
		t.Fatalf("error %v", err)
	}
}

// Weaver rejects a registry in which a member has no ID.
func TestAMemberWithoutItsKeysIsRefused(t *testing.T) {
	for keys, missing := range map[string]string{
		"value: a, brief: x, stability: development": "id", "id: a, value: a, brief: x": "stability",
		"id: a, brief: x, stability: development": "value",
	} {
		_, err := parse([]byte("groups: [{id: g, attributes: [{id: a, type: {members: [{"+keys+"}]}}]}]"), "x")
		if err == nil || !strings.Contains(err.Error(), "`"+missing+"`") {
			t.Errorf("%s: %v", keys, err)
		}
	}
}

func TestImportedMetricsAreRefinedAndViceVersa(t *testing.T) {
	const refined = "groups:\n  - {id: r, type: attribute_group, annotations: {metric: hw.power}}\n"
	if _, err := parse([]byte(refined+"imports: {metrics: [hw.power]}\n"), "x"); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		refined, "imports: {metrics: [hw.power]}\n",
		refined + "imports: {metrics: [hw.energy]}\n",
	} {
		if _, err := parse([]byte(bad), "x"); err == nil || !strings.Contains(err.Error(), "hw.") {
			t.Errorf("error %v for\n%s", err, bad)
		}
	}
}

func TestAGroupThatExtendsNothingIsRefused(t *testing.T) {
	_, err := resolve([]definition{{ID: "a", Type: "metric", Extends: "b"}})
	if err == nil || err.Error() != `group a extends "b", which is no group` {
		t.Fatalf("error %v", err)
	}
	if _, err = resolve([]definition{{ID: "a", Type: "metric", Extends: "a"}}); err == nil {
		t.Fatal("a group that extends itself is taken")
	}
}

func TestEveryEntryHasAnExampleOfItsTypeAndAKnownGroup(t *testing.T) {
	r := loaded(t)
	groups := map[string]bool{}
	for _, g := range r.Groups {
		groups[g.ID] = true
	}
	for _, a := range r.Attributes {
		if !groups[a.Group] {
			t.Errorf("%s: unknown group %q", a.Name, a.Group)
		}
		ok := false
		switch v := a.Example.(type) {
		case string:
			ok = a.Type == "string"
		case int:
			ok = a.Type == "int" || a.Type == "double"
		case float64:
			ok = a.Type == "double"
		case bool:
			ok = a.Type == "boolean"
		case []any:
			_, text := v[0].(string)
			ok = a.Type == "string[]" && text || a.Type == "int[]" && !text
		}
		if !ok {
			t.Errorf("%s: example %#v is not of type %s", a.Name, a.Example, a.Type)
		}
		if s, is := a.Example.(string); is && len(a.Members) > 0 && !a.Open {
			found := false
			for _, m := range a.Members {
				found = found || m.Value == s
			}
			if !found {
				t.Errorf("%s: example %q is not a member", a.Name, s)
			}
		}
		for _, m := range a.Members {
			if m.Brief == "" {
				t.Errorf("%s: member %s has no brief", a.Name, m.Value)
			}
		}
	}
	for _, m := range r.Metrics {
		if !groups[m.Group] {
			t.Errorf("%s: unknown group %q", m.Name, m.Group)
		}
		if m.Example == nil {
			t.Errorf("%s has no example", m.Name)
		}
	}
}

func TestGoNamesDoNotCollide(t *testing.T) {
	r := loaded(t)
	seen := map[string]string{}
	add := func(id, name string) {
		if other, ok := seen[id]; ok {
			t.Errorf("%s is the Go name of %s and of %s", id, other, name)
		}
		seen[id] = name
	}
	for _, a := range r.Attributes {
		add(goName(a.Name)+"Key", a.Name)
		for _, m := range a.Members {
			add(goName(a.Name)+goName(m.Value), a.Name+"="+m.Value)
		}
	}
	for _, m := range r.Metrics {
		for _, s := range []string{"Name", "Unit", "Description"} {
			add(goName(m.Name)+s, m.Name)
		}
	}
	for _, e := range r.Events {
		add(goName(e.Name)+"EventName", e.Name)
	}
}
