// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command testall runs go test in every module of the repository and reports what ran.
//
//	go run internal/tools/testall/{main,race}.go [-module DIR] [-integration] [GO TEST FLAGS]
//
// With -integration it runs the tests that need servers of others (Jaeger, Prometheus, Kafka, Chromium) or large
// libraries of others, which it leaves out otherwise: the tests named TestIntegration… in test and internal/tools, and
// the modules benchmarks, internal/tools/snapshot, test/browser, test/kubernetes and test/prometheus; the tests that
// mdatagen generates, which take longer to link than all other tests of a component; most of the simulated jobs of
// receiver/kinetoreceiver, the long simulations of gpuspan/internal/clockmap, and programs that are built without cgo.
// With -race it leaves out packages whose tests start no goroutine.
//
// It is run from the root of the repository. Modules that go.work names are tested in the workspace, by one run of go
// test, so that no core is idle while the last package of a module waits; the others (internal/tools, benchmarks) with
// GOWORK=off, as their users get them. It prints the output of failing packages, the reason of each skipped test, one
// line for each module, and at the end the counts. The exit status is 1 if anything failed.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// event is one line of go test -json; ImportPath is set on the lines of a build.
type event struct {
	Action     string
	ImportPath string
	Package    string
	Test       string
	Output     string
	Elapsed    float64
}

type result struct {
	packages, passed, failed, skipped int
	broken                            bool // a package did not build, or go test could not run
}

func (r *result) add(other result) {
	r.packages += other.packages
	r.passed += other.passed
	r.failed += other.failed
	r.skipped += other.skipped
	r.broken = r.broken || other.broken
}

func main() {
	args := os.Args[1:]
	var only string
	if len(args) > 1 && args[0] == "-module" {
		only, args = filepath.Clean(args[1]), args[2:]
	}
	integration := len(args) > 0 && args[0] == "-integration"
	dirs, err := modules(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if integration {
		args = args[1:]
		if err := os.Setenv("OTELGPU_INTEGRATION", "1"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	} else if (only == "" || only == pythonPackage) && !slices.Contains(args, "-race") {
		dirs = append(dirs, pythonPackage)
	}
	if only != "" {
		dirs = slices.DeleteFunc(dirs, func(dir string) bool { return dir != only })
	}
	results := map[string]*result{}
	begin := time.Now()
	var together []string // packages of the workspace
	for _, dir := range dirs {
		chosen := selection(dir, integration || dir == only && slices.Contains(others, dir))
		if len(chosen) == 0 {
			continue
		}
		r := &result{}
		results[dir] = r
		if dir == pythonPackage {
			continue // last
		}
		for _, c := range chosen {
			whole := slices.Equal(c, []string{"./..."}) && inWorkspace(dir)
			if c, err = packages(dir, c, slices.Contains(args, "-race")); err != nil {
				fmt.Printf("cannot list the packages of %s: %v\n", dir, err)
				r.broken = true
				continue
			}
			switch {
			case len(c) == 0: // with the race detector
			case whole:
				together = append(together, c...)
			default:
				fmt.Printf("=== module %s\n", dir)
				r.add(test(dir, slices.Concat(args, c)))
			}
		}
	}
	if len(together) > 0 {
		fmt.Println("=== workspace")
		for dir, r := range testWorkspace(args, longestFirst(together), dirs) {
			results[dir].add(*r)
		}
	}
	if r := results[pythonPackage]; r != nil {
		fmt.Println("=== python")
		r.add(testPython("."))
	}
	var total result
	var lines []string
	for _, dir := range dirs {
		r := results[dir]
		if r == nil {
			continue
		}
		state := "ok"
		if r.failed > 0 || r.broken {
			state = "FAILED"
		}
		lines = append(lines, fmt.Sprintf("%-6s  %-20s %3d packages, %4d tests passed, %d failed, %d skipped",
			state, dir, r.packages, r.passed, r.failed, r.skipped))
		total.add(*r)
	}
	fmt.Println()
	fmt.Println(strings.Join(lines, "\n"))
	if total.broken && total.failed == 0 {
		total.failed = 1 // a package that did not build counts as a failure
	}
	fmt.Println(time.Since(begin).Round(time.Second))
	fmt.Printf("%d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped)
	if total.failed > 0 {
		os.Exit(1)
	}
}

// pythonPackage represents the tests of the Python package among the modules.
const pythonPackage = "python"

// modules returns the directories below root that hold a go.mod, sorted. Hidden ones, testdata and build (what the
// Collector builder generates) are omitted.
func modules(root string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "build") {
			return filepath.SkipDir
		}
		if d.Name() == "go.mod" {
			out = append(out, filepath.Dir(path))
		}
		return nil
	})
	slices.Sort(out)
	return out, err
}

// others are the modules with servers or large libraries of others. Compiling these takes as long as the tests of all
// other modules.
var others = []string{"benchmarks", "internal/tools/snapshot", "test/browser", "test/kubernetes", "test/prometheus"}

// generated matches the packages that mdatagen generates, and whose tests it generates, too.
var generated = regexp.MustCompile(`/internal/metadata(test)?$`)

// selection returns the arguments of each run of go test that a module's tests take; none if it has no tests for the
// mode.
func selection(dir string, integration bool) [][]string {
	apart := slices.Contains(others, dir)
	switch {
	case integration && dir == ".":
		return [][]string{
			{"-run", "^TestIntegration", "./test/..."},
			{"./.../internal/metadata", "./.../internal/metadatatest"},
			{
				"-tags", "sqlite", "-run",
				"^TestCausesAndLosses|^TestVariants|^TestNsightTwins|^TestTruncated|^TestSimulatedJobsWithoutKineto",
				"./receiver/kinetoreceiver",
			},
			{"-tags", "sqlite", "./internal/sqlitefile", "./internal/heldoutjobs", "./receiver/nsysreceiver"},
		}
	case integration && dir == "internal/tools":
		return [][]string{{"-run", "^TestIntegration", "./..."}}
	case integration && dir == "gpuspan":
		return [][]string{{"./internal/clockmap"}, {"-run", "^TestIntegration", "./cuda", "./internal/dl"}}
	case apart != integration:
		return nil
	case dir == "test/kubernetes":
		// Its tests read manifests outside the module, whose changes Go's cache of results does not notice.
		return [][]string{{"-count=1", "./..."}}
	default:
		return [][]string{{"./..."}}
	}
}

// packages returns a selection with the packages of the module in place of ./...: without the generated ones, and with
// the race detector only those in which it can find something, for their tests take several times as long.
func packages(dir string, chosen []string, race bool) ([]string, error) {
	if !inWorkspace(dir) || !slices.Equal(chosen, []string{"./..."}) {
		return chosen, nil
	}
	cmd := exec.Command("go", "list", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	d := detector{root: ".", seen: map[string]bool{}}
	return slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool {
		return generated.MatchString(path) || race && !d.tests(path)
	}), err
}

// inWorkspace reports whether go.work names dir.
func inWorkspace(dir string) bool {
	out, err := exec.Command("go", "work", "edit", "-json").Output()
	if err != nil {
		return false
	}
	var work struct{ Use []struct{ DiskPath string } }
	if json.Unmarshal(out, &work) != nil {
		return false
	}
	return slices.ContainsFunc(work.Use, func(u struct{ DiskPath string }) bool {
		return filepath.Clean(u.DiskPath) == dir
	})
}

// test runs the tests of packages of one module.
func test(dir string, args []string) result {
	return *goTest(dir, args, func(string) string { return dir })[dir]
}

// testWorkspace runs the tests of packages of several modules together.
func testWorkspace(args, packages, dirs []string) map[string]*result {
	if !slices.Contains(args, "-race") { // tests wait for servers and clocks, so there are more programs than cores
		args = append([]string{"-p", strconv.Itoa(runtime.NumCPU() + 2)}, args...)
	}
	args = slices.Concat(args, packages)
	return goTest(".", args, func(path string) string { return moduleOf(path, dirs) })
}

// long are the packages that determine how long a run takes. The Collector's package is the first: package test builds
// the Collector, too, and then finds its dependencies compiled.
var long = []string{
	"cmd/otelcol-gpu", "test", "receiver/kinetoreceiver", "receiver/gpureceiver/internal/dcgmsource",
	"gpuspan/internal/clockmap",
}

// longestFirst moves the long packages to the front: go test starts what it is given first as early as it can.
func longestFirst(paths []string) []string {
	rank := func(path string) int {
		i := slices.Index(long, strings.TrimPrefix(path, repository+"/"))
		if i < 0 {
			return len(long)
		}
		return i
	}
	return slices.SortedStableFunc(slices.Values(paths), func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
}

// moduleOf returns the directory of dirs whose module contains a package; the first, which is the root, if none does.
func moduleOf(path string, dirs []string) string {
	best := dirs[0]
	path, _, _ = strings.Cut(path, " ") // a test's variant: PACKAGE [PACKAGE.test]
	for _, dir := range dirs {
		if strings.HasPrefix(path+"/", repository+"/"+dir+"/") && len(dir) > len(best) {
			best = dir
		}
	}
	return best
}

// goTest runs go test and returns the counts by what module returns for the path of a package. What concerns no package
// is in the result of the empty path.
func goTest(dir string, args []string, module func(string) string) map[string]*result {
	// make vet and make lint vet the same files; here it would cost a tenth of a first run.
	all := []string{"test", "-json", "-vet=off", "-timeout", "25m"}
	// The compiler and the linker collect garbage for a seventh of their time, on machines with memory to spare.
	if env, err := exec.LookPath("env"); err == nil {
		all = append(all, "-toolexec", env+" GOGC=400")
	}
	cmd := exec.Command("go", append(all, args...)...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	if !inWorkspace(dir) {
		cmd.Env = append(cmd.Env, "GOWORK=off")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	own := &result{}
	results := map[string]*result{module(""): own}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Printf("cannot run go test in %s: %v\n", dir, err)
		own.broken = true
		return results
	}
	read(out, func(path string) *result {
		to := module(path)
		if results[to] == nil {
			results[to] = &result{}
		}
		return results[to]
	})
	err = cmd.Wait()
	failed := 0
	for _, r := range results {
		failed += r.failed
	}
	var exit *exec.ExitError
	if err != nil && (failed == 0 || !errors.As(err, &exit)) {
		own.broken = true
		fmt.Printf("go test in %s: %v\n%s", dir, err, stderr.Bytes())
	}
	return results
}

// read counts the events in the result of each package and prints what a reader needs: the complete output of failed
// tests and packages, and reasons of skips.
func read(out io.Reader, of func(path string) *result) {
	output := map[string][]string{} // by package and test
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		var e event
		if json.Unmarshal(s.Bytes(), &e) != nil {
			fmt.Println(s.Text())
			continue
		}
		key := e.Package + e.ImportPath + " " + e.Test
		r := of(e.Package + e.ImportPath)
		switch e.Action {
		case "output", "build-output":
			output[key] = append(output[key], e.Output)
		case "pass":
			if e.Test != "" {
				r.passed++
			} else {
				r.packages++
				fmt.Printf("ok      %s %.1fs\n", e.Package, e.Elapsed)
			}
			delete(output, key)
		case "skip":
			if e.Test != "" {
				r.skipped++
				fmt.Printf("skipped %s %s: %s\n", e.Package, e.Test, reason(output[key]))
			}
			delete(output, key)
		case "fail", "build-fail":
			if e.Test != "" {
				r.failed++
			} else {
				r.broken = true
			}
			fmt.Printf("FAILED  %s\n%s", key, strings.Join(output[key], ""))
			delete(output, key)
		}
	}
}

// reason extracts the message of t.Skip from a test's output.
func reason(output []string) string {
	for _, o := range output {
		if _, text, ok := strings.Cut(strings.TrimSpace(o), ".go:"); ok {
			_, text, _ = strings.Cut(text, ": ")
			return text
		}
	}
	return "no reason given"
}

// interpreter returns the Python that tests run with: OTELGPU_PYTHON, otherwise an environment in python/.venv,
// otherwise python3. If none has the packages that the tests need, path is empty and reason names the problem.
func interpreter(root string) (path, reason string) {
	path = os.Getenv("OTELGPU_PYTHON")
	if path == "" {
		path = filepath.Join(root, "python", ".venv", "bin", "python")
		if _, err := os.Stat(path); err != nil {
			path = "python3"
		}
	}
	if _, err := exec.LookPath(path); err != nil {
		return "", path + " is not installed"
	}
	if out, err := exec.Command(path, "-c",
		"import pytest, opentelemetry.sdk, opentelemetry.exporter.otlp.proto.http").CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return "", fmt.Sprintf("%s: %s (pip install ./python[test] into python/.venv)", path, lines[len(lines)-1])
	}
	return path, ""
}

// testPython runs the tests of the Python package, or prints why it does not.
func testPython(root string) result {
	path, reason := interpreter(root)
	if path == "" {
		fmt.Printf("skipped python: %s\n", reason)
		return result{skipped: 1}
	}
	if strings.ContainsRune(path, filepath.Separator) {
		path, _ = filepath.Abs(path) // it runs in another folder
	}
	cmd := exec.Command(path, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider")
	cmd.Dir = filepath.Join(root, "python")
	cmd.Env = append(os.Environ(), "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	r := pytestCounts(out.String())
	if err != nil {
		r.broken = r.failed == 0
		fmt.Printf("FAILED  python: %v\n%s", err, out.String())
		return r
	}
	for line := range strings.SplitSeq(out.String(), "\n") {
		if text, ok := strings.CutPrefix(line, "SKIPPED "); ok {
			fmt.Printf("skipped python %s\n", text)
		}
	}
	return r
}

var pytestCount = regexp.MustCompile(`(\d+) (passed|failed|skipped|errors?)`)

// pytestCounts reads the closing line of pytest.
func pytestCounts(output string) result {
	r := result{packages: 1}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for _, m := range pytestCount.FindAllStringSubmatch(lines[len(lines)-1], -1) {
		n, _ := strconv.Atoi(m[1])
		switch m[2] {
		case "passed":
			r.passed += n
		case "skipped":
			r.skipped += n
		default:
			r.failed += n
		}
	}
	return r
}
