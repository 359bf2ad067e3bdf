// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite ../../docs/peaks.md")

func itoa(n int) string { return strconv.Itoa(n) }

func near(got, want, rel float64) bool { return math.Abs(got-want) <= rel*math.Abs(want) }

// Derives the same numbers from the architecture papers: bus width × data rate, units × operations
// per clock × boost clock, links × rate. The tolerance of 1.5 % allows for vendors' rounding.
func TestRowsAgreeWithTheirArchitecture(t *testing.T) {
	for _, tt := range []struct {
		model           string
		bits, gbps      float64 // memory bus and rate per pin
		precision       string
		perClock, boost float64 // FLOP per clock and SM, GHz
		links, perLink  float64 // one direction, GB/s
	}{
		{"Tesla P100-SXM2-16GB", 4096, 1.43, "fp32", 128, 1.480, 4, 20},
		{"Tesla V100-SXM2-16GB", 4096, 1.757, "fp16", 1024, 1.530, 6, 25},
		{"Tesla T4", 256, 10, "fp16", 1024, 1.590, 0, 0},
		{"NVIDIA A100-SXM4-40GB", 5120, 2.43, "bf16", 2048, 1.410, 12, 25},
		{"NVIDIA A100-SXM4-80GB", 5120, 3.186, "fp64", 128, 1.410, 12, 25},
		{"NVIDIA A10", 384, 12.5, "fp16", 1024, 1.695, 0, 0},
		{"NVIDIA A10G", 384, 12.5, "fp32", 256, 1.710, 0, 0},
		{"NVIDIA A40", 384, 14.5, "tf32", 512, 1.740, 4, 14.0625},
		{"NVIDIA L4", 192, 12.5, "fp32", 256, 2.040, 0, 0},
		{"NVIDIA L40S", 384, 18, "fp8", 2048, 2.520, 0, 0},
		{"NVIDIA H100 80GB HBM3", 5120, 5.234, "bf16", 4096, 1.830, 18, 25},
		{"NVIDIA H100 PCIe", 5120, 3.186, "fp16", 4096, 1.620, 12, 25},
		{"NVIDIA H200", 6144, 6.25, "fp8", 8192, 1.830, 18, 25},
		{"NVIDIA A800-SXM4-80GB", 5120, 3.186, "bf16", 2048, 1.410, 8, 25},
		{"NVIDIA H800", 5120, 5.234, "bf16", 4096, 1.830, 8, 25},
		{"NVIDIA H800 PCIe", 5120, 3.186, "fp16", 4096, 1.620, 8, 25},
		{"NVIDIA H20-3e", 6144, 6.25, "", 0, 0, 18, 25},
		{"NVIDIA H20", 6144, 5.2, "", 0, 0, 18, 25},
		{"NVIDIA L20", 384, 18, "fp16", 512, 2.520, 0, 0},
		{"NVIDIA B200", 7680, 7.992, "", 0, 0, 18, 50},
		{"NVIDIA RTX A6000", 384, 16, "fp32", 256, 1.800, 4, 14.0625},
		{"TITAN RTX", 384, 14, "fp16", 1024, 1.770, 2, 25},
		{"NVIDIA TITAN V", 3072, 1.7, "fp32", 128, 1.455, 0, 0},
		{"NVIDIA GeForce RTX 3060", 192, 15, "fp16", 1024, 1.777, 0, 0},
		{"NVIDIA GeForce RTX 3070", 256, 14, "bf16", 512, 1.725, 0, 0},
		{"NVIDIA GeForce RTX 4060", 128, 17, "fp16", 1024, 2.460, 0, 0},
		{"NVIDIA GeForce RTX 4070", 192, 21, "fp32", 256, 2.475, 0, 0},
		{"NVIDIA GeForce RTX 5060 Ti", 128, 28, "fp32", 256, 2.572, 0, 0},
		{"NVIDIA GB10", 256, 8.533, "fp4", 4096, 2.543, 0, 0},
		{"NVIDIA GeForce RTX 3090", 384, 19.5, "bf16", 512, 1.695, 4, 14.0625},
		{"NVIDIA GeForce RTX 4090", 384, 21, "fp16", 1024, 2.520, 0, 0},
		{"NVIDIA GeForce RTX 4080 SUPER", 256, 23, "fp16", 1024, 2.550, 0, 0},
		{"NVIDIA GeForce RTX 4070 Ti SUPER", 256, 21, "fp16", 1024, 2.610, 0, 0},
		{"NVIDIA RTX 5000 Ada Generation", 256, 18, "fp16", 1024, 2.550, 0, 0},
		{"NVIDIA RTX 4500 Ada Generation", 192, 18, "fp32", 256, 2.580, 0, 0},
		{"NVIDIA GeForce RTX 5070", 192, 28, "fp4", 4096, 2.512, 0, 0},
		{"NVIDIA GeForce RTX 5070 Ti", 256, 28, "fp32", 256, 2.452, 0, 0},
		{"NVIDIA GeForce RTX 5080", 256, 30, "fp4", 4096, 2.617, 0, 0},
		{"NVIDIA RTX PRO 5000 Blackwell", 384, 28, "fp4", 4096, 2.290, 0, 0},
		{"NVIDIA GeForce RTX 5090", 512, 28, "fp4", 4096, 2.407, 0, 0},
		{"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 512, 28, "fp32", 256, 2.600, 0, 0},
		{"NVIDIA RTX PRO 6000 Blackwell Server Edition", 512, 25, "bf16", 1024, 2.430, 0, 0},
		{"AMD Instinct MI210", 4096, 3.2, "fp16", 1024, 1.700, 3, 50},
		{"AMD Instinct MI250X", 4096, 3.2, "fp64", 256, 1.700, 0, 0},
		{"AMD Instinct MI300X", 8192, 5.2, "fp16", 2048, 2.100, 7, 64},
		{"AMD Instinct MI355X", 8192, 7.8125, "fp8", 8192, 2.400, 7, 76.8},
		{"AMD Instinct MI350X", 8192, 7.8125, "bf16", 4096, 2.200, 7, 76.8},
	} {
		d, ok := Lookup(tt.model)
		if !ok {
			t.Errorf("no row for %q", tt.model)
			continue
		}
		if want := tt.bits / 8 * tt.gbps * 1e9; !near(d.MemoryBandwidth, want, 0.015) {
			t.Errorf("%s: memory bandwidth %g, %g bits at %g Gbit/s make %g", tt.model, d.MemoryBandwidth, tt.bits, tt.gbps,
				want)
		}
		if want := float64(d.SMs) * tt.perClock * tt.boost * 1e9; !near(d.FLOPs.Of(tt.precision), want, 0.015) {
			t.Errorf("%s: %s %g, %d SMs at %g GHz make %g", tt.model, tt.precision, d.FLOPs.Of(tt.precision), d.SMs, tt.boost,
				want)
		}
		if want := tt.links * tt.perLink * 1e9; want > 0 && !near(d.Interconnect, want, 0.015) {
			t.Errorf("%s: interconnect %g, want %g", tt.model, d.Interconnect, want)
		}
	}
}

// Dense rates double when operands halve, except on old chips; a sparse rate entered as a dense one
// fails here.
func TestRatesOfARowFitEachOther(t *testing.T) {
	for _, d := range All() {
		f := d.FLOPs
		if f.FP8 > 0 && !near(f.FP8, 2*f.FP16, 0.02) {
			t.Errorf("%s: fp8 %g is not twice fp16 %g", d.Name, f.FP8, f.FP16)
		}
		if f.BF16 > f.FP16 {
			t.Errorf("%s: bf16 %g above fp16 %g", d.Name, f.BF16, f.FP16)
		}
		if f.TF32 > 0 && !near(f.TF32, f.BF16/2, 0.02) {
			t.Errorf("%s: tf32 %g is not half of bf16 %g", d.Name, f.TF32, f.BF16)
		}
		if f.FP4 > 0 && (f.FP4 < 1.95*f.FP8 || f.FP4 > 3.1*f.FP8) {
			t.Errorf("%s: fp4 %g against fp8 %g", d.Name, f.FP4, f.FP8)
		}
		if f.FP32 == 0 || d.MemoryBandwidth == 0 || d.MemorySize == 0 || d.SMs == 0 && d.Name != "L2" {
			t.Errorf("%s: a required figure is missing", d.Name)
		}
		// One NVLink or Infinity Fabric direction never exceeds the memory behind it.
		if d.Interconnect >= d.MemoryBandwidth/2 {
			t.Errorf("%s: interconnect %g against memory %g: both directions summed?", d.Name, d.Interconnect, d.MemoryBandwidth)
		}
		if (d.Interconnect > 0) != (d.Domain > 1) {
			t.Errorf("%s: interconnect %g for %d devices", d.Name, d.Interconnect, d.Domain)
		}
		if u, err := url.Parse(d.Source); err != nil || u.Scheme != "https" || u.Host == "" {
			t.Errorf("%s: source %q", d.Name, d.Source)
		}
		for profile := range d.mig {
			if _, ok := d.Profile(profile); !ok {
				t.Errorf("%s: MIG profile %s does not scale", d.Name, profile)
			}
		}
	}
}

func TestTheTableIsParsed(t *testing.T) {
	rows, err := read(table)
	if err != nil {
		t.Error(err)
	}
	if want := len(regexp.MustCompile(`(?m)^[^#]`).FindAllString(table, -1)) - 1; len(rows) != want {
		t.Errorf("%d rows of %d", len(rows), want)
	}
	broken := strings.Replace(table, ",3350,", ",335O,", 1)
	if _, err := read(broken); err == nil {
		t.Error("an invalid number is not detected")
	}
}

func TestPCIeRate(t *testing.T) {
	// Published one-direction payload rates of a x16 link in GB/s.
	for gen, want := range map[int]float64{1: 4, 2: 8, 3: 15.754, 4: 31.508, 5: 63.015, 6: 121} {
		if got := PCIeRate(gen, 16); !near(got, want*1e9, 1e-4) {
			t.Errorf("generation %d: %g", gen, got)
		}
	}
	for _, bad := range [][2]int{{0, 16}, {7, 16}, {-1, 16}, {4, 0}, {4, 3}, {4, -16}} {
		if got := PCIeRate(bad[0], bad[1]); got != 0 {
			t.Errorf("PCIeRate(%d, %d) = %g, want 0", bad[0], bad[1], got)
		}
	}
	if got := (HostLink{C2C: 450e9}).Rate(); got != 450e9 {
		t.Errorf("C2C: %g", got)
	}
}

// A guest's driver names a vGPU by its board's short name, its slices if it is an instance, its
// memory and its series. It has all engines of the board in its turns, but only its memory.
func TestVGPUsHaveTheirBoardsPeaks(t *testing.T) {
	for name, want := range map[string]struct {
		board      string
		gb, shares float64
	}{
		"GRID T4-16Q":         {"Tesla T4", 16, 1},
		"NVIDIA A40-8C":       {"NVIDIA A40", 8, 1},
		"NVIDIA L40S-24Q":     {"NVIDIA L40S", 24, 1},
		"NVIDIA A16-4A":       {"NVIDIA A16", 4, 1},
		"GRID A100-10C":       {"NVIDIA A100-PCIE-40GB", 10, 1},
		"NVIDIA A100D-80C":    {"NVIDIA A100 80GB PCIe", 80, 1},
		"NVIDIA A100-3-20C":   {"NVIDIA A100-PCIE-40GB", 20, 42. / 108},
		"NVIDIA A30-2-12C":    {"NVIDIA A30", 12, 28. / 56},
		"NVIDIA H100XM-80C":   {"NVIDIA H100 80GB HBM3", 80, 1},
		"NVIDIA H100XM-1-10C": {"NVIDIA H100 80GB HBM3", 10, 16. / 132},
		"GRID V100DX-32C":     {"Tesla V100-SXM2-32GB", 32, 1},
		"NVIDIA RTXA6000-48Q": {"NVIDIA RTX A6000", 48, 1},
	} {
		got, ok := Lookup(name)
		board, known := Lookup(want.board)
		if !ok || !known {
			t.Errorf("no row for %q (%v) or %q (%v)", name, ok, want.board, known)
			continue
		}
		if !near(got.FLOPs.FP32, board.FLOPs.FP32*want.shares, 1e-9) || !near(got.MemorySize, want.gb*1e9, 0.01) {
			t.Errorf("%s: fp32 %g of %g, %g bytes", name, got.FLOPs.FP32, board.FLOPs.FP32, got.MemorySize)
		}
		if got.Interconnect != 0 || got.Power != 0 || want.shares == 1 && got.MemoryBandwidth != board.MemoryBandwidth {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, name := range []string{"NVIDIA A100-1-99C", "GRID K99-4Q", "NVIDIA A40-96C", "NVIDIA A40-8X", "NVIDIA A40-0C", "-8C", "NVIDIA T4-1-4C"} {
		if d, ok := Lookup(name); ok {
			t.Errorf("%s is %s", name, d.Name)
		}
	}
}

func TestInstanceIsAPartByItsSMsAndSlices(t *testing.T) {
	a100, _ := Lookup("NVIDIA A100-SXM4-40GB")
	got, ok := a100.Instance(42, 20e9)
	if !ok {
		t.Fatal("not scaled")
	}
	if want := 312e12 * 42 / 108; !near(got.FLOPs.BF16, want, 1e-12) {
		t.Errorf("bf16 %g, want %g", got.FLOPs.BF16, want)
	}
	if got.MemoryBandwidth != 777.5e9 {
		t.Errorf("bandwidth %g, want half of 1555e9", got.MemoryBandwidth)
	}
	if got.Interconnect != 0 || got.Host != a100.Host || got.SMs != 42 {
		t.Errorf("interconnect %g, host %v, SMs %d", got.Interconnect, got.Host, got.SMs)
	}
	// The driver reports a little less than the profile's name says: 19.62 GiB of 39.4 for 3g.20gb.
	if again, ok := a100.Instance(42, 19.62*(1<<30)); !ok || again.MemoryBandwidth != got.MemoryBandwidth {
		t.Errorf("by the driver's size: %g", again.MemoryBandwidth)
	}
	// Data sheets of the H200 and of Blackwell mean GiB, so the driver reports 7 % more: 143,167
	// MiB for 7g.141gb.
	h200, _ := Lookup("NVIDIA H200")
	if whole, ok := h200.Instance(132, 143167<<20); !ok || whole.MemoryBandwidth != h200.MemoryBandwidth {
		t.Errorf("the whole of an H200: %g, %v", whole.MemoryBandwidth, ok)
	}
	for _, bad := range []struct {
		sms    int
		memory float64
	}{{0, 5e9}, {-1, 5e9}, {109, 40e9}, {14, 0}, {14, -1}, {14, math.NaN()}, {14, math.Inf(1)}, {14, 80e9}, {14, 1}} {
		if d, ok := a100.Instance(bad.sms, bad.memory); ok {
			t.Errorf("Instance(%d, %g) = %+v", bad.sms, bad.memory, d)
		}
	}
	if _, ok := (Device{}).Instance(1, 1); ok {
		t.Error("an unknown device was scaled")
	}
}

func TestFLOPRatesByName(t *testing.T) {
	var r FLOPRates
	for i, p := range Precisions() {
		if !r.Set(p, float64(i+1)) || r.Of(p) != float64(i+1) {
			t.Errorf("%s: %g", p, r.Of(p))
		}
	}
	if (r != FLOPRates{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("order: %v", r)
	}
	if r.Set("fp80", 1) || r.Of("") != 0 {
		t.Error("an unknown precision was taken")
	}
}

func TestDocumentIsTheTable(t *testing.T) {
	const path = "../../docs/peaks.md"
	var b bytes.Buffer
	b.WriteString(
		"<!-- Generated from gpuspan/peaks (go test ./peaks -run Document -update in gpuspan). Do not edit. -->\n\n# Peaks of device models\n\n" +
			"What `gpu_derive`, the in-process report and the `gpu` receiver compare with. FLOP rates are dense, in TFLOP/s at boost clock\n" +
			"(int8: TOP/s); links are one direction, in GB/s, with the number of devices that NVLink or xGMI connects; a dash is unknown; one value for fp16 and bf16 if they are equal.\n" +
			"Models link to their data sheets. A model that is missing here gets no utilization; `peaks:` of\n" +
			"[gpu_derive](../processor/gpuderiveprocessor/README.md) adds or overrides models. Package `gpuspan/peaks` documents the rules.\n\n" +
			"| model, as the driver names it | memory GB | GB/s | fp64 | fp32 | tf32 | fp16, bf16 | fp8 | fp4 | int8 | host link | NVLink, xGMI |\n" +
			"|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	num := func(x, unit float64) string {
		if x == 0 {
			return "-"
		}
		return strconv.FormatFloat(math.Round(x/unit*100)/100, 'f', -1, 64)
	}
	link := func(d Device) string {
		if d.Domain == 0 {
			return "-"
		}
		return num(d.Interconnect, giga) + " × " + strconv.Itoa(d.Domain)
	}
	for _, d := range All() {
		b.WriteString("| ")
		for i, n := range d.names {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "[`%s`](%s)", n, d.Source)
		}
		if i := strings.Index(d.Name, "("); i > 0 {
			b.WriteString(" " + d.Name[i:])
		}
		fmt.Fprintf(&b, " | %s | %s", num(d.MemorySize, giga), num(d.MemoryBandwidth, giga))
		for _, p := range Precisions() {
			rate := num(d.FLOPs.Of(p), tera)
			switch {
			case p == "bf16":
				continue
			case p == "fp16" && d.FLOPs.FP16 != d.FLOPs.BF16:
				rate += ", " + num(d.FLOPs.BF16, tera)
			}
			fmt.Fprintf(&b, " | %s", rate)
		}
		fmt.Fprintf(&b, " | %s | %s |\n", num(d.Host.Rate(), giga), link(d))
	}
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%s is not what the table says; run go test ./peaks -run Document -update", path)
	}
}

func FuzzLookup(f *testing.F) {
	f.Add("NVIDIA H100 80GB HBM3 MIG 1g.10gb")
	f.Add("Tesla V100-SXM2-16GB")
	f.Add(" mig ")
	f.Fuzz(func(t *testing.T, model string) {
		d, ok := Lookup(model)
		if !ok && d.Name != "" {
			t.Errorf("a device beside false: %q", d.Name)
		}
		if ok && !(d.MemoryBandwidth > 0 && d.FLOPs.FP32 > 0) {
			t.Errorf("%q: %+v", model, d)
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Lookup("NVIDIA H100 80GB HBM3"); !ok {
			b.Fatal("not found")
		}
	}
}
