// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	goBlock    = regexp.MustCompile("(?s)```go\n(.*?)```")
	inlineCode = regexp.MustCompile("`[^`\n]+`")
)

// face lists the exported names of a package, methods as Type.Method.
func face(t *testing.T, dir string) (names, methods []string) {
	t.Helper()
	set := token.NewFileSet()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var files []*ast.File
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			f, err := parser.ParseFile(set, filepath.Join(dir, e.Name()), nil, parser.ParseComments)
			require.NoError(t, err)
			files = append(files, f)
		}
	}
	p, err := doc.NewFromFiles(set, files, "x")
	require.NoError(t, err)
	add := func(values []*doc.Value, funcs []*doc.Func) {
		for _, v := range values {
			for _, n := range v.Names {
				if ast.IsExported(n) {
					names = append(names, n)
				}
			}
		}
		for _, f := range funcs {
			names = append(names, f.Name)
		}
	}
	add(p.Consts, p.Funcs)
	add(p.Vars, nil)
	for _, x := range p.Types {
		names = append(names, x.Name)
		add(x.Consts, x.Funcs)
		add(x.Vars, nil)
		for _, m := range x.Methods {
			methods = append(methods, x.Name+"."+m.Name)
		}
	}
	return names, methods
}

// Every exported name must appear in the guide or in an example.
func TestEachNameIsUsedInTheGuideOrAnExample(t *testing.T) {
	var code strings.Builder
	guide, err := os.ReadFile(filepath.Join("..", "docs", "gpuspan.md"))
	require.NoError(t, err)
	for _, b := range goBlock.FindAllSubmatch(guide, -1) {
		code.Write(b[1])
	}
	for _, b := range inlineCode.FindAll(guide, -1) {
		code.Write(b)
		code.WriteByte('\n')
	}
	examples := []string{"example_test.go", "api_test.go"}
	require.NoError(t, filepath.WalkDir(filepath.Join("..", "examples"),
		func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				examples = append(examples, path)
			}
			return err
		}))
	require.Greater(t, len(examples), 5)
	for _, path := range examples {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		code.Write(b)
	}
	names, methods := face(t, ".")
	require.LessOrEqual(t, len(names), 75, "as many as log/slog has")
	t.Logf("%d names, %d methods", len(names), len(methods))
	used := func(pattern string) bool { return regexp.MustCompile(pattern).MatchString(code.String()) }
	for _, n := range names {
		require.True(t, used(`(gpuspan\.|`+"`|`"+`)`+n+`\b`), "%s is neither in docs/gpuspan.md nor in an example", n)
	}
	for _, m := range methods {
		_, n, _ := strings.Cut(m, ".")
		require.True(t, used(`[\w)]\.`+n+`\(|`+"`"+n+"`"), "%s is neither in docs/gpuspan.md nor in an example", m)
	}
}

// around is the code that completes a document's code block: imports and declarations at the top,
// and statements before and after the block in its function.
type around struct{ imports, top, before, after string }

var blocks = map[string][]around{
	"README.md": {{
		imports: `"context"; "github.com/otelgpu/otelgpu/gpuspan"`,
		before:  `ctx := context.Background(); var stream *gpuspan.Stream; var raw, batch any; launchKernels := func(raw, batch any) {}; tokens, flops := int64(1), 1.0; _, _ = raw, batch`,
	}},
	"docs/gpuspan.md": {
		{},
		{
			imports: `"context"; "log"; "github.com/otelgpu/otelgpu/gpuspan"; "github.com/otelgpu/otelgpu/gpuspan/cuda"`,
			before:  `ctx, handle, tokens, flops := context.Background(), uintptr(0), int64(1), 1.0; prefill := gpuspan.NewOperation("prefill")`,
		},
		{
			imports: `"context"; "github.com/otelgpu/otelgpu/gpuspan"; "github.com/otelgpu/otelgpu/gpuspan/backend"; "github.com/otelgpu/otelgpu/gpuspan/otlp"; "go.opentelemetry.io/otel/sdk/resource"`,
			before:  `ctx := context.Background(); var res *resource.Resource; var b backend.Backend`,
			after:   `_ = err`,
		},
		{
			imports: `"context"; "github.com/otelgpu/otelgpu/gpuspan"; "github.com/otelgpu/otelgpu/gpuspan/train"`,
			top:     `type images struct{ N int64 }; type source struct{}; func (source) Next(context.Context) (b images, ok bool) { return }`,
			before:  `ctx := context.Background(); var prof *gpuspan.Profiler; var stream *gpuspan.Stream; var loader source`,
		},
	},
	"docs/files.md": {{
		imports: `"context"; "github.com/otelgpu/otelgpu/gpuspan/chrometrace"; "github.com/otelgpu/otelgpu/gpuspan/rank"; "github.com/otelgpu/otelgpu/gpuspan/stepcsv"
			"go.opentelemetry.io/otel/sdk/resource"; sdktrace "go.opentelemetry.io/otel/sdk/trace"`,
		before: `ctx := context.Background()`,
		after:  `_, _ = tp, err`,
	}},
	"docs/flops.md": {{
		imports: `"github.com/otelgpu/otelgpu/gpuspan"; "github.com/otelgpu/otelgpu/gpuspan/flops"`,
		before:  `var x gpuspan.Section; var attention *gpuspan.Operation; batch, heads, queries, keys, headDim := 1, 1, 1, 1, 1`,
	}},
	"docs/requests.md": {{
		imports: `"context"; "github.com/otelgpu/otelgpu/gpuspan"`,
		top: `type request struct{ ctx context.Context }; type engine struct { stream *gpuspan.Stream; active []request }
			func (e *engine) launchDecode() { _ = prefill }`,
	}},
}

var (
	leftOut = regexp.MustCompile(`(?m)^\s*…$`)
	cgoCall = regexp.MustCompile(`(?m)^\s*C\.\w+\(.*\)`)
)

// Every Go block of the documents compiles, except for C calls and elided code.
func TestTheCodeOfTheDocumentsCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	dir, clone := t.TempDir(), ".."
	clone, err := filepath.Abs(clone)
	require.NoError(t, err)
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	text := strings.Replace(string(mod), "module github.com/otelgpu/otelgpu/gpuspan", "module example.com/docs", 1)
	text = strings.ReplaceAll(text, "=> ../", "=> "+clone+string(filepath.Separator))
	text += fmt.Sprintf(
		"\nrequire github.com/otelgpu/otelgpu/gpuspan v0.0.0\n\nreplace github.com/otelgpu/otelgpu/gpuspan => %s\n",
		filepath.Join(clone, "gpuspan"))
	sums, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))

	documents, err := filepath.Glob(filepath.Join(clone, "docs", "*.md"))
	require.NoError(t, err)
	for _, path := range append(documents, filepath.Join(clone, "README.md")) {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		name, err := filepath.Rel(clone, path)
		require.NoError(t, err)
		found := goBlock.FindAllSubmatch(b, -1)
		require.Len(t, found, len(blocks[filepath.ToSlash(name)]), "%s has other blocks of Go than this test knows", name)
		for i, m := range found {
			a, code := blocks[filepath.ToSlash(name)][i], string(m[1])
			if !strings.HasPrefix(code, "package ") {
				code = cgoCall.ReplaceAllString(leftOut.ReplaceAllString(code, ""), "")
				head, body := "", code
				if d := strings.Index(code, "\n\n"); strings.HasPrefix(code, "var ") && d > 0 {
					head, body = code[:d], code[d:]
				}
				if strings.HasPrefix(strings.TrimSpace(body), "func ") {
					head, body = head+body, ""
				}
				code = "package docs\n\nimport (\n" + a.imports + "\n)\n\n" + a.top + "\n" + head + "\nfunc _() {\n" + a.before +
					"\n" + body + "\n" + a.after + "\n}\n"
			}
			sub := filepath.Join(dir, strings.NewReplacer("/", "_", ".", "_").Replace(filepath.ToSlash(name))+fmt.Sprint(i))
			require.NoError(t, os.Mkdir(sub, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(sub, "code.go"), []byte(code), 0o600))
		}
	}
	build := exec.Command("go", "build", "-mod=mod", "./...")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
}
