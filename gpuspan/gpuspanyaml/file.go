// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpuspanyaml reads gpuspan's settings from YAML, usually three nodes of a trainer's own
// configuration file:
//
//	model: …                 # the trainer's; ignored
//	timing:                  # settings of package gpuspan, without report and schedule
//	  verbosity: verbose
//	  sync: deferred
//	  memory_usage: true
//	nvtx:                    # range annotations, package gpuspan/nvtx
//	  enabled: true
//	  domain: trainer
//	profiling:               # which steps are recorded, and what is written
//	  schedule: {skip_first: 50, warmup: 1, active: 3, every: 10}
//	  report: true
//	  print_report: true
//	  trace_dir: /tmp/traces # for package gpuspan/chrometrace
//	  step_csv: steps.csv    # for package gpuspan/stepcsv
//
// [Load] and [Read] accept the name of another node that has the three. `nvtx: true` is `nvtx:
// {enabled: true}`; `timing: false`, `profiling: false` and `profiling: null` switch profiling off.
//
// Keys that guides of PyTorch's profiler use are accepted below `profiling`, too:
//
//	wait, warmup, active, repeat, skip_first  →  profiling.schedule.<same name>
//	enabled                                   →  timing.enabled
//	profile_memory                            →  timing.memory_usage
//	with_stack                                →  timing.code_location
//	output_dir                                →  profiling.trace_dir
//	record_shapes, with_flops, with_modules, activities: an error that names the replacement
//
// Missing or null nodes and values keep the defaults; other nodes and further documents of the file
// are ignored. Unknown keys, duplicate keys, values of the wrong type and impossible combinations
// within the three nodes are errors, which are all returned together.
package gpuspanyaml

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// File is gpuspan's part of a configuration file.
type File struct {
	Settings settings.Settings // nodes timing and profiling
	NVTX     NVTX              // node nvtx
	TraceDir string            // profiling.trace_dir: folder of Chrome traces; empty: none
	StepCSV  string            // profiling.step_csv: file of one row per step; empty: none
}

// NVTX is the node nvtx.
type NVTX struct {
	Enabled bool   // annotate sections with NVTX ranges; default false
	Domain  string // NVTX domain; empty: the default of package nvtx
}

// Option returns the option of gpuspan.New that applies the settings. Zero Settings, as of a File
// that was not read, leave the environment's settings unchanged.
func (f File) Option() gpuspan.Option {
	return gpuspan.WithSettings(func(s *settings.Settings) {
		if f.Settings != (settings.Settings{}) {
			*s = f.Settings
		}
	})
}

// maxSize bounds what is read: configuration files are small, alias bombs are not.
const maxSize = 1 << 20

// Load reads a file whose settings override the environment (settings.FromEnv). at is the path of
// the node that contains timing, nvtx and profiling, outermost first, if that is not the top:
// Load("train.yaml", "runtime"). It returns an error if the file cannot be read, lacks that node,
// or has invalid values.
func Load(path string, at ...string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, fmt.Errorf("cannot open configuration: %w", err)
	}
	defer func() { _ = f.Close() }()
	out, err := Read(f, at...)
	if err != nil {
		return out, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// Read is like [Load] for a reader. If it returns an error, invalid values have their defaults.
func Read(r io.Reader, at ...string) (File, error) {
	settings, wrong := settings.FromEnv()
	out := File{Settings: settings}
	data, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return out, fmt.Errorf("cannot read: %w", err)
	}
	if len(data) > maxSize {
		return out, fmt.Errorf("larger than %d bytes", maxSize)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return out, fmt.Errorf("not YAML: %w", err)
	}
	if len(doc.Content) == 0 { // as a file of comments
		doc.Content = []*yaml.Node{{Kind: yaml.MappingNode}}
	}
	root, err := below(doc.Content[0], at)
	if err != nil {
		return out, err
	}
	p := parser{out: &out, errs: []error{wrong}, seen: map[string]bool{}}
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch name := root.Content[i].Value; name {
		case "timing", "nvtx", "profiling":
			if p.once(name, root.Content[i]) {
				p.node(name, "", root.Content[i+1])
			}
		}
	}
	if out.NVTX.Domain != "" && !out.NVTX.Enabled {
		p.errs = append(p.errs, fmt.Errorf("`nvtx.domain` is %q but `nvtx.enabled` is off (set enabled: true)",
			out.NVTX.Domain))
	}
	return out, errors.Join(append(p.errs, out.Settings.Validate())...)
}

// below returns the node that at names, nil if it is missing or null.
func below(n *yaml.Node, at []string) (*yaml.Node, error) {
	for i := 0; ; i++ {
		n = resolve(n)
		if i == len(at) && isNull(n) {
			return &yaml.Node{}, nil
		}
		if n.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("line %d: a mapping is expected, found %s", n.Line, kindName(n))
		}
		if i == len(at) {
			return n, nil
		}
		var next *yaml.Node
		for k := 0; k+1 < len(n.Content) && next == nil; k += 2 {
			if n.Content[k].Value == at[i] {
				next = n.Content[k+1]
			}
		}
		if n = next; n == nil {
			return nil, fmt.Errorf("missing node `%s`", strings.Join(at[:i+1], "."))
		}
	}
}

type parser struct {
	out  *File
	errs []error
	seen map[string]bool // keys with their nodes
}

// once reports whether a key is not a duplicate.
func (p *parser) once(path string, key *yaml.Node) bool {
	if p.seen[path] {
		p.fail(key, "`%s` is set twice", path)
		return false
	}
	p.seen[path] = true
	return true
}

func (p *parser) fail(n *yaml.Node, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("line %d: %w", n.Line, fmt.Errorf(format, args...)))
}

// node reads the keys of a mapping. prefix is the path below the top-level node, with a dot.
func (p *parser) node(top, prefix string, n *yaml.Node) {
	n = resolve(n)
	if on, ok := isSwitch(n); prefix == "" && (ok || top == "profiling" && isNull(n)) {
		p.turn(top, on)
		return
	}
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		p.fail(n, "`%s` must be a mapping, found %s", strings.TrimSuffix(top+"."+prefix, "."), kindName(n))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		path := prefix + key.Value
		switch {
		case !p.once(top+"."+path, key) || isNull(value): // not set
		case top == "profiling" && path == "schedule":
			p.node(top, "schedule.", value)
		case value.Kind != yaml.ScalarNode:
			p.fail(value, "`%s.%s` must be a single value, found %s", top, path, kindName(value))
		default:
			p.value(top, path, key, value.Value)
		}
	}
}

// value sets one key, which must belong to its node.
func (p *parser) value(top, path string, key *yaml.Node, value string) {
	if to, ok := profilerKeys[path]; ok && top == "profiling" {
		top, path, _ = strings.Cut(to, ".")
	}
	before := p.out.Settings
	switch home := settings.Node(path); {
	case top == "nvtx" && path == "enabled":
		p.out.NVTX.Enabled = value == "true"
		if value != "true" && value != "false" {
			p.fail(key, "`nvtx.enabled` must be true or false, found %q", value)
		}
	case top == "nvtx" && path == "domain":
		p.out.NVTX.Domain = value
	case top == "nvtx":
		p.fail(key, "unknown key `nvtx.%s` (it has enabled and domain)", path)
	case top == "profiling" && path == "trace_dir":
		p.out.TraceDir = value
	case top == "profiling" && path == "step_csv":
		p.out.StepCSV = value
	default:
		if err := p.out.Settings.Set(path, value); err != nil {
			p.fail(key, "%s: %w", top, err)
		} else if home != top {
			p.out.Settings = before
			p.fail(key, "`%s` belongs below `%s`, found below `%s`", path, home, top)
		}
	}
}

// turn switches a node on or off as a whole. `profiling: null` is how trainers' files switch it
// off.
func (p *parser) turn(top string, on bool) {
	if top == "nvtx" {
		p.out.NVTX.Enabled = on
		return
	}
	if !p.seen["timing.enabled"] { // which has precedence, wherever it is
		p.out.Settings.Enabled = on
	}
}

func isSwitch(n *yaml.Node) (on, ok bool) {
	ok = n.Kind == yaml.ScalarNode && n.Tag == "!!bool"
	return ok && strings.EqualFold(n.Value, "true"), ok
}

// profilerKeys maps names of settings in guides of PyTorch's profiler to ours.
var profilerKeys = map[string]string{
	"enabled":        "timing.enabled",
	"wait":           "profiling.schedule.wait",
	"warmup":         "profiling.schedule.warmup",
	"active":         "profiling.schedule.active",
	"repeat":         "profiling.schedule.repeat",
	"skip_first":     "profiling.schedule.skip_first",
	"profile_memory": "timing.memory_usage",
	"with_stack":     "timing.code_location",
	"output_dir":     "profiling.trace_dir",
}

// resolve follows an alias to its node.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func kindName(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return fmt.Sprintf("%q", n.Value)
	}
	return map[yaml.Kind]string{
		yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.AliasNode: "an alias", 0: "nothing",
	}[n.Kind]
}
