// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

import (
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestLookupTakesTheDriversNames(t *testing.T) {
	for model, want := range map[string]string{
		"NVIDIA H100 80GB HBM3":             "H100 SXM5 80GB",
		"NVIDIA H100 PCIe":                  "H100 PCIe 80GB",
		"NVIDIA H200":                       "H200 SXM",
		"NVIDIA H200 NVL":                   "H200 NVL",
		"NVIDIA GH200 480GB":                "GH200 96GB",
		"NVIDIA A100-SXM4-40GB":             "A100 SXM4 40GB",
		"A100-SXM4-80GB":                    "A100 SXM4 80GB",
		"NVIDIA A100 80GB PCIe":             "A100 PCIe 80GB",
		"Tesla V100-SXM2-16GB":              "V100 SXM2 16GB",
		"tesla v100 sxm2 16gb":              "V100 SXM2 16GB",
		"NVIDIA L40S":                       "L40S",
		"NVIDIA L4":                         "L4",
		"NVIDIA B200":                       "B200",
		"NVIDIA GeForce RTX 4090":           "GeForce RTX 4090",
		"NVIDIA RTX 6000 Ada Generation":    "RTX 6000 Ada",
		"Quadro RTX 6000":                   "Quadro RTX 6000",
		"AMD Instinct MI300X":               "Instinct MI300X",
		"AMD Instinct MI300X OAM":           "Instinct MI300X",
		"AMD Instinct MI250X":               "Instinct MI250X (one die)",
		"NVIDIA H100 80GB HBM3 MIG 1g.10gb": "H100 SXM5 80GB MIG 1g.10gb",
	} {
		got, ok := Lookup(model)
		if !ok || got.Name != want {
			t.Errorf("Lookup(%q) = %q, %v, want %q", model, got.Name, ok, want)
		}
	}
}

func TestLookupDoesNotGuess(t *testing.T) {
	for _, model := range []string{
		"", " ", "NVIDIA", "NVIDIA H100", "NVIDIA A100", "A100-SXM4", "NVIDIA GeForce RTX 4090 Laptop GPU",
		"NVIDIA GeForce RTX 4090 D",
		"NVIDIA GeForce RTX 3090 Ti", "NVIDIA RTX 6000", "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb",
		"NVIDIA H100 80GB HBM3 MIG 5g.50gb", "NVIDIA L4 MIG 1g.10gb", "simulated", "AMD Instinct MI250X / MI250", "\x00\xff",
	} {
		if got, ok := Lookup(model); ok {
			t.Errorf("Lookup(%q) = %q, want none", model, got.Name)
		}
	}
}

func TestNoTwoRowsShareAName(t *testing.T) {
	seen := map[string]string{}
	for _, d := range All() {
		if len(d.names) == 0 {
			t.Errorf("%s: no driver name", d.Name)
		}
		for _, n := range d.names {
			k := normalise(strings.ToLower(n))
			if was, ok := seen[k]; ok {
				t.Errorf("%q names %q and %q", n, was, d.Name)
			}
			seen[k] = d.Name
		}
	}
}

// testdata returns the folder of recorded files next to the repository; without it, tests that need
// it are skipped.
func testdata(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("OTELGPU_TESTDATA"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "shared", "data", "MANIFEST.md")); err == nil {
			return filepath.Join(dir, "shared", "data")
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Skip("no recorded data: set OTELGPU_TESTDATA to the folder of MANIFEST.md")
	return ""
}

var deviceProperty = regexp.MustCompile(`"name":\s*"([^"]+)",\s*"totalGlobalMem":\s*\d+`)

func TestEveryRecordedModelHasARow(t *testing.T) {
	root := testdata(t)
	models := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		switch {
		case strings.HasSuffix(path, ".json.gz"):
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			z, err := gzip.NewReader(f)
			if err != nil {
				return err
			}
			head, err := io.ReadAll(io.LimitReader(z, 1<<16)) // the properties come first
			if err != nil {
				return err
			}
			for _, m := range deviceProperty.FindAllSubmatch(head, -1) {
				models[string(m[1])] = path
			}
		case strings.Contains(path, "field-support"):
			models[strings.TrimSuffix(strings.ReplaceAll(e.Name(), "_", " "), ".yaml")] = path
		case strings.Contains(path, "nvidia-smi"):
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range regexp.MustCompile(`Product Name\s+: (.+)`).FindAllSubmatch(b, -1) {
				models[string(m[1])] = path
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(models) < 10 {
		t.Fatalf("found %d models only: %v", len(models), models)
	}
	for m, path := range models {
		if _, ok := Lookup(m); !ok {
			t.Errorf("no row for %q (%s)", m, path)
		}
	}
}

// The capture lists an H100 divided into 3g.40gb, 2g.20gb and two 1g.10gb instances, with the SMs
// of each.
func TestMIGProfilesAgreeWithADriver(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(testdata(t), "nvidia-smi", "linux-x86_64__nvidia-h100-mig__590.48.01.txt"))
	if err != nil {
		t.Fatal(err)
	}
	profiles := regexp.MustCompile(`(?m)^  MIG (\S+)\s+Device`).FindAllSubmatch(b, -1)
	counts := regexp.MustCompile(`Multiprocessor count\s+: (\d+)`).FindAllSubmatch(b, -1)
	if len(profiles) != 4 || len(counts) < 4 { // the report is printed in two forms
		t.Fatalf("%d profiles, %d counts", len(profiles), len(counts))
	}
	for i := range profiles {
		d, ok := Lookup("NVIDIA H100 80GB HBM3 MIG " + string(profiles[i][1]))
		if !ok || itoa(d.SMs) != string(counts[i][1]) {
			t.Errorf("%s: %d SMs, the driver says %s", profiles[i][1], d.SMs, counts[i][1])
		}
	}
}
