// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// WriteTable writes all settings as a Markdown table, with the values of s and the names in YAML,
// the environment, flags and code. Options in code override flags, flags override YAML, YAML
// overrides the environment, and the environment overrides defaults. It returns the error of w.
func (s Settings) WriteTable(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| YAML | environment | flag | option | values | value | effect |\n" +
		"| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, k := range s.keys() {
		fmt.Fprintf(&b, "| `%s.%s` | `%s` | `-%s` | %s | %s | `%s` | %s |\n", Node(k.Name), k.Name, k.Env(), k.Flag(),
			cmp.Or(options[k.Name], "–"), strings.ReplaceAll(k.Kind, "|", ", "), k.get(), k.Help)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Node returns the node of a configuration file in which package gpuspanyaml reads the setting of
// that name.
func Node(name string) string {
	if name == "report" || name == "print_report" || strings.HasPrefix(name, "schedule.") {
		return "profiling"
	}
	return "timing"
}

// options names the option that sets a setting in code; gpuspan.WithSettings sets all of them. The
// most specific one wins.
var options = map[string]string{
	"enabled":             "`SetEnabled`",
	"verbosity":           "`SetVerbosity`; `AtVerbosity` of an operation",
	"sync":                "`Sync` of a stream or operation",
	"capture_check":       "`NeverCaptured` of a stream",
	"report":              "`WithReport`",
	"print_report":        "`PrintReport` of an operation",
	"schedule.skip_first": "`train.Schedule`",
	"schedule.wait":       "`train.Schedule`",
	"schedule.warmup":     "`train.Schedule`",
	"schedule.active":     "`train.Schedule`",
	"schedule.repeat":     "`train.Schedule`",
	"schedule.every":      "`train.Schedule`",
}
