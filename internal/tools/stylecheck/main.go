// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command stylecheck reports phrases of words.yaml in Markdown, in comments and string literals of Go, and in the
// texts of YAML, Python and C files.
//
//	stylecheck [-root DIR] [-list] [-update]
//
// The file baseline.yaml has the number of matches that each file may still have. A file with more matches fails.
// `-update` lowers the numbers to what is found and never raises one, so they only decrease. `-list` prints all
// matches.
package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed words.yaml
var wordsYAML []byte

// Rule is a phrase to avoid and its replacement.
type Rule struct {
	Match string `yaml:"match"`
	Write string `yaml:"write"`

	pattern *regexp.Regexp
}

// Match is a phrase found in a file.
type Match struct {
	File, Text, Write string
	Line              int
}

func main() {
	root := flag.String("root", ".", "directory of the repository")
	list := flag.Bool("list", false, "print every match, the permitted ones included")
	update := flag.Bool("update", false, "lower the numbers of baseline.yaml to what is found")
	flag.Parse()
	if err := run(*root, *list, *update); err != nil {
		fmt.Fprintln(os.Stderr, "stylecheck:", err)
		os.Exit(1)
	}
}

func run(root string, list, update bool) error {
	rules, err := parseRules(wordsYAML)
	if err != nil {
		return err
	}
	files, err := trackedFiles(root)
	if err != nil {
		return err
	}
	var matches []Match
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		matches = append(matches, check(name, data, rules)...)
	}
	if list {
		for _, m := range matches {
			fmt.Printf("%s:%d: %q (write: %s)\n", m.File, m.Line, m.Text, m.Write)
		}
	}
	path := filepath.Join(root, "internal/tools/stylecheck/baseline.yaml")
	baseline, err := readBaseline(path)
	if err != nil {
		return err
	}
	fmt.Printf("%d phrases in %d files, %d permitted\n", len(matches), len(files), total(baseline))
	if update {
		return writeBaseline(path, lowered(baseline, count(matches)))
	}
	return compare(matches, baseline)
}

// maxSize is the maximum size of a file under version control in bytes. Larger files, such as programs and databases,
// were added by mistake.
const maxSize = 1 << 20

// trackedFiles returns the files under version control that people read. It fails if any file is too large.
func trackedFiles(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the files of %s: %w", root, err)
	}
	var files []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.Size() > maxSize {
			return nil, fmt.Errorf("%s has %d bytes, more than %d: remove it from version control, or store it elsewhere",
				name, info.Size(), maxSize)
		}
		if readable(name) {
			files = append(files, name)
		}
	}
	return files, nil
}

// readable reports whether the file is handwritten and for readers. Historical records are exempt.
func readable(name string) bool {
	base := filepath.Base(name)
	switch {
	case strings.HasPrefix(name, "internal/tools/stylecheck/"), name == "CHANGELOG.md", name == "LICENSE",
		strings.HasPrefix(name, "docs/adr/"), strings.Contains(name, "/testdata/"), strings.HasPrefix(base, "generated_"):
		return false
	}
	switch filepath.Ext(name) {
	case ".md", ".go", ".yaml", ".yml", ".py", ".c", ".h", ".js", ".html", ".sh":
		return true
	}
	return base == "Makefile" || name == ".ci/run"
}

func parseRules(data []byte) ([]Rule, error) {
	var doc struct {
		Rules []Rule `yaml:"rules"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("cannot read the rules: %w", err)
	}
	for i := range doc.Rules {
		r := &doc.Rules[i]
		p, err := regexp.Compile(`(?i)\b(?:` + r.Match + `)\b`)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Match, err)
		}
		if r.Write == "" {
			return nil, fmt.Errorf("rule %q does not say what to write", r.Match)
		}
		r.pattern = p
	}
	return doc.Rules, nil
}

// check returns the phrases of rules in the text of the file that people read.
func check(name string, data []byte, rules []Rule) []Match {
	var text []byte
	switch filepath.Ext(name) {
	case ".go":
		text = goText(data)
	case ".md":
		text = markdownText(data)
	default:
		text = bytes.Clone(data)
	}
	text = blank(text, codeSpan)
	var matches []Match
	for _, r := range rules {
		for _, at := range r.pattern.FindAllIndex(text, -1) {
			matches = append(matches, Match{
				File: name, Text: string(text[at[0]:at[1]]), Write: r.Write, Line: 1 + bytes.Count(text[:at[0]], []byte("\n")),
			})
		}
	}
	slices.SortStableFunc(matches, func(a, b Match) int { return cmp.Compare(a.Line, b.Line) })
	return matches
}

var (
	codeSpan  = regexp.MustCompile("`[^`\n]+`")
	codeFence = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
)

// blank replaces what pattern matches by spaces, keeping the lines.
func blank(text []byte, pattern *regexp.Regexp) []byte {
	return pattern.ReplaceAllFunc(text, func(b []byte) []byte {
		return bytes.Map(func(r rune) rune {
			if r == '\n' {
				return r
			}
			return ' '
		}, b)
	})
}

func markdownText(data []byte) []byte { return blank(data, codeFence) }

// goText returns the comments and string literals of a Go file on their lines. A file that does not parse is returned
// whole.
func goText(data []byte) []byte {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", data, parser.ParseComments)
	if err != nil {
		return bytes.Clone(data)
	}
	text := bytes.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return ' '
	}, toASCII(data))
	keep := func(from, to token.Pos) {
		a, b := set.Position(from).Offset, set.Position(to).Offset
		copy(text[a:b], data[a:b])
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			keep(c.Pos(), c.End())
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if _, isImport := n.(*ast.ImportSpec); isImport {
			return false
		}
		// The quotes stay outside: they are no code font.
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && lit.End()-lit.Pos() > 2 {
			keep(lit.Pos()+1, lit.End()-1)
		}
		return true
	})
	return text
}

// toASCII replaces each byte outside ASCII, so that offsets in bytes stay valid when runes are replaced by spaces.
func toASCII(data []byte) []byte {
	out := bytes.Clone(data)
	for i, b := range out {
		if b >= 0x80 {
			out[i] = '?'
		}
	}
	return out
}

func count(matches []Match) map[string]int {
	n := map[string]int{}
	for _, m := range matches {
		n[m.File]++
	}
	return n
}

func total(baseline map[string]int) int {
	sum := 0
	for _, n := range baseline {
		sum += n
	}
	return sum
}

// compare returns an error that lists the files whose number of matches differs from the permitted one.
func compare(matches []Match, baseline map[string]int) error {
	found := count(matches)
	var problems []string
	for _, file := range slices.Sorted(maps.Keys(found)) {
		n := found[file]
		if n <= baseline[file] {
			continue
		}
		problems = append(problems, fmt.Sprintf("%s: %d phrases, %d permitted:", file, n, baseline[file]))
		for _, m := range matches {
			if m.File == file {
				problems = append(problems, fmt.Sprintf("  %s:%d: %q (write: %s)", m.File, m.Line, m.Text, m.Write))
			}
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New("\n" + strings.Join(problems, "\n"))
}

// lowered returns the smaller number of both. With an empty baseline it returns what is found.
func lowered(baseline, found map[string]int) map[string]int {
	if len(baseline) == 0 {
		return found
	}
	out := map[string]int{}
	for file, n := range baseline {
		if m := min(n, found[file]); m > 0 {
			out[file] = m
		}
	}
	return out
}

func readBaseline(path string) (map[string]int, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return map[string]int{}, nil
	}
	if err != nil {
		return nil, err
	}
	baseline := map[string]int{}
	if err := yaml.Unmarshal(data, &baseline); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return baseline, nil
}

func writeBaseline(path string, baseline map[string]int) error {
	var b strings.Builder
	b.WriteString("# Copyright The otelgpu Authors\n# SPDX-License-Identifier: Apache-2.0\n\n")
	b.WriteString("# Phrases of words.yaml that each file may still have. `make style-update` lowers the numbers.\n")
	for _, file := range slices.Sorted(maps.Keys(baseline)) {
		fmt.Fprintf(&b, "%s: %d\n", file, baseline[file])
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
