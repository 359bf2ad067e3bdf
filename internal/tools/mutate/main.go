// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command mutate introduces small faults into the code, one at a time, and reports the ones that
// the tests do not detect.
//
// make mutate, or bin/mutate [-only TEXT]
//
// Run it from the root of the repository. The faults are in mutations.yaml in this directory: each
// replaces one piece of text of one package, and names the packages whose tests must fail then
// (and, to be quick, which tests). Files are not modified: the go command gets the changed one by
// -overlay. The exit status is 1 if a fault was not detected, does not build, replaces text that
// does not occur exactly once, or if the tests fail without it, too.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"
)

// mutation is a fault.
type mutation struct {
	Name string   `yaml:"name"` // description of the fault
	In   string   `yaml:"in"`   // folder of the package, or a file that one embeds
	From string   `yaml:"from"` // exactly once in the package
	To   string   `yaml:"to"`
	Test []string `yaml:"test"` // packages
	Run  string   `yaml:"run"`  // pattern of tests; empty: all
}

// find returns the file that has the text, and the file with the fault.
func (m *mutation) find() (path, changed string, err error) {
	if m.From == m.To {
		return "", "", errors.New("changes nothing")
	}
	pattern := m.In
	if !strings.HasSuffix(m.In, ".yaml") {
		pattern = filepath.Join(m.In, "*.go")
	}
	files, err := filepath.Glob(pattern)
	if err != nil {
		return "", "", err
	}
	n := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			return "", "", err
		}
		if k := strings.Count(string(text), m.From); k > 0 {
			n += k
			path, changed = f, strings.Replace(string(text), m.From, m.To, 1)
		}
	}
	if n != 1 {
		return "", "", fmt.Errorf("`from` must be in %s once, is there %d times", m.In, n)
	}
	path, err = filepath.Abs(path)
	return path, changed, err
}

// caught runs the tests on the fault.
func (m *mutation) caught() (bool, error) {
	path, changed, err := m.find()
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	replacement, overlay := filepath.Join(dir, "changed"+filepath.Ext(path)), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{path: replacement}})
	err = errors.Join(err, os.WriteFile(replacement, []byte(changed), 0o600), os.WriteFile(overlay, text, 0o600))
	if err != nil {
		return false, err
	}
	if out, err := m.run(); err != nil { // from the cache, as a rule
		return false, fmt.Errorf("the tests fail without it: %s", out)
	}
	out, err := m.run("-overlay=" + overlay)
	if bytes.Contains(out, []byte("[build failed]")) {
		return false, fmt.Errorf("does not build: %s", out)
	}
	return err != nil, nil
}

// run runs the tests of a mutation and returns their output.
func (m *mutation) run(flags ...string) ([]byte, error) {
	args := append([]string{"test", "-tags=sqlite", "-vet=off", "-failfast", "-run=" + m.Run}, flags...)
	return exec.Command("go", append(args, m.Test...)...).CombinedOutput()
}

func main() {
	only := flag.String("only", "", "the faults whose name or folder has this text")
	flag.Parse()
	if err := run(*only, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(only string, w io.Writer) error {
	list, err := load(filepath.Join("internal", "tools", "mutate", "mutations.yaml"))
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(m mutation) bool { return !strings.Contains(m.Name+" "+m.In, only) })
	type answer struct {
		caught bool
		err    error
		took   time.Duration
	}
	answers := make([]chan answer, len(list))
	for i := range answers {
		answers[i] = make(chan answer, 1)
	}
	var next atomic.Int64
	for range min(len(list), runtime.GOMAXPROCS(0)) {
		go func() {
			for i := next.Add(1) - 1; i < int64(len(list)); i = next.Add(1) - 1 {
				began := time.Now()
				caught, err := list[i].caught()
				answers[i] <- answer{caught, err, time.Since(began).Round(time.Second)}
			}
		}()
	}
	passed, broken := 0, 0
	for i, m := range list {
		a := <-answers[i]
		verdict := "caught"
		switch {
		case a.err != nil:
			verdict = "BROKEN: " + a.err.Error()
			broken++
		case !a.caught:
			verdict = "PASSED"
			passed++
		}
		fmt.Fprintf(w, "%-7s %s: %s (%s)\n", verdict, m.In, m.Name, a.took)
	}
	fmt.Fprintf(w, "%d faults: %d caught, %d passed, %d broken\n", len(list), len(list)-passed-broken, passed, broken)
	if passed+broken > 0 {
		return errors.New("the tests let a fault pass, or the list is older than the code")
	}
	return nil
}

func load(path string) (list []mutation, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", path, err)
	}
	return list, nil
}
