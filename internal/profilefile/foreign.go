// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package profilefile recognizes files of profilers by their first bytes, for all readers, and
// names the command that converts unsupported ones.
package profilefile

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/internal/regularfile"
)

// HeadSize is how many bytes of a file [Foreign] needs.
const HeadSize = 4096

// kind is a format that is known by name. Formats are recognized by their first bytes if
// documented, otherwise by the end of the file's name.
type kind struct {
	is     func(head []byte) bool // nil: by the name alone
	ends   []string
	says   string
	remedy string
}

func begins(with string) func([]byte) bool {
	return func(head []byte) bool { return bytes.HasPrefix(head, []byte(with)) }
}

// kinds are formats of GPU profilers that are not supported.
var kinds = []kind{
	{
		is: begins("NVIDIA Tegra Profiler"), ends: []string{".nsys-rep", ".qdrep", ".qdstrm"},
		says: "a report of Nsight Systems", remedy: "nsys export --type sqlite FILE",
	},
	{
		ends:   []string{".ncu-rep"},
		says:   "a report of Nsight Compute, which has counters of single kernels and no timeline",
		remedy: "record with nsys profile, then nsys export --type sqlite",
	},
	{is: begins("\x89HDF\r\n\x1a\n"), says: "HDF5, as of nsys export --type hdf", remedy: "nsys export --type sqlite"},
	{is: begins("ARROW1"), says: "Arrow, as of nsys export --type arrow", remedy: "nsys export --type sqlite"},
	{is: begins("\xff\xfe"), says: "text in UTF-16", remedy: "iconv -f UTF-16 -t UTF-8 FILE"},
	{is: begins("\xfe\xff"), says: "text in UTF-16", remedy: "iconv -f UTF-16 -t UTF-8 FILE"},
	{is: begins("{\x00"), says: "text in UTF-16", remedy: "iconv -f UTF-16LE -t UTF-8 FILE"},
	{is: begins("\x00{"), says: "text in UTF-16", remedy: "iconv -f UTF-16BE -t UTF-8 FILE"},
	{
		is: begins("\x80"), says: "a Python pickle, as of PyTorch's memory snapshots, which have no times of the device",
		remedy: "torch.profiler.profile(...).export_chrome_trace",
	},
	{is: begins("PK\x03\x04"), says: "a ZIP archive", remedy: "unpack it"},
	{is: tarball, says: "a tar archive", remedy: "unpack it"},
	{
		is: rocTable, ends: []string{"_kernel_trace.csv"}, says: "a table of rocprofv3 in CSV",
		remedy: "record with rocprofv3 --output-format json",
	},
	{
		is: table, says: "a table in CSV",
		remedy: "for ROCm: rocprofv3 --output-format json; for Nsight Systems: nsys export --type sqlite",
	},
	{
		ends: []string{".pftrace", ".pftrace.gz", ".perfetto-trace"}, says: "a Perfetto trace",
		remedy: "for ROCm: record with rocprofv3 --output-format json",
	},
	{is: begins("BZh"), says: "bzip2", remedy: "bunzip2 FILE"},
	{is: begins("\xfd7zXZ\x00"), says: "xz", remedy: "unxz FILE"},
	{is: begins("version https://git-lfs"), says: "a pointer of Git LFS", remedy: "git lfs pull"},
}

// IsXPlane reports whether a file is a message XSpace (tsl/profiler/protobuf/xplane.proto), plain
// or gzip: by its first field, which are planes, whose names begin with /host: or /device:, or by
// its name.
func IsXPlane(path string, head []byte) bool {
	return len(head) > 0 && head[0] == 0x0a && (bytes.Contains(head, []byte("/host:")) ||
		bytes.Contains(head, []byte("/device:"))) ||
		(strings.HasSuffix(path, ".xplane.pb") || strings.HasSuffix(path, ".xplane.pb.gz")) && !readable(head)
}

// tarball looks for the magic string of POSIX archives (pax(1), ustar interchange format).
func tarball(head []byte) bool { return len(head) > 262 && string(head[257:262]) == "ustar" }

// table looks for the columns of times in tables that rocprofv3, rocprof and nsys stats write.
func table(head []byte) bool {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	return !readable(head) && slices.ContainsFunc([]string{"Start_Timestamp", "BeginNs", "Start (ns)", "Total Time (ns)"},
		func(column string) bool { return bytes.Contains(first, []byte(column)) })
}

// rocTable looks for columns of all of rocprofv3's tables (ROCprofiler-SDK,
// source/lib/output/generateCSV.cpp).
func rocTable(head []byte) bool {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	return table(head) && bytes.Contains(first, []byte("Correlation_Id"))
}

// documents are forms of JSON that are not traces, by keys and prefixes of texts that all of them
// have.
var documents = []struct {
	keys         []string
	says, remedy string
}{
	{
		[]string{`"nodes"`, `"[pytorch|profiler|execution_`},
		"an execution trace of PyTorch, as for Chakra, which has no times of a device",
		"torch.profiler.profile(...).export_chrome_trace",
	},
	{
		[]string{`"frame"`, `"metrics"`, `"children"`},
		"a tree of sums, as of Triton's Proton, without a timeline",
		"torch.profiler.profile(...).export_chrome_trace",
	},
	{[]string{`"globalVid"`}, "JSON of Nsight Systems", "nsys export --type sqlite"},
	{[]string{`"CudaEvent"`}, "JSON of Nsight Systems", "nsys export --type sqlite"},
	{[]string{`"TraceProcessEvent"`}, "JSON of Nsight Systems", "nsys export --type sqlite"},
	{[]string{`"resourceSpans"`}, "OTLP", "otelcol-gpu check FILE"},
	{[]string{`"resourceMetrics"`}, "OTLP", "otelcol-gpu check FILE"},
}

// Document is like [Foreign], for a JSON file that is not a trace; head is not compressed.
func Document(path string, head []byte) string {
	for _, d := range documents {
		if !slices.ContainsFunc(d.keys, func(key string) bool { return !bytes.Contains(head, []byte(key)) }) {
			return named(path, d.says, d.remedy)
		}
	}
	return ""
}

func named(path, says, remedy string) string {
	return "it is " + says + " (" + strings.ReplaceAll(remedy, "FILE", filepath.Base(path)) + ")"
}

// Foreign describes a file that cannot be read, with the remedy in brackets: "it is a report of
// Nsight Systems (nsys export --type sqlite FILE)". It is empty for files that are read, and for
// unknown ones.
func Foreign(path string, head []byte) string {
	for _, k := range kinds {
		ends := slices.ContainsFunc(k.ends, func(end string) bool { return strings.HasSuffix(path, end) })
		if k.is != nil && k.is(head) || ends && !readable(head) {
			return named(path, k.says, k.remedy)
		}
	}
	return ""
}

// readable reports whether a file starts like a supported one, whatever its name is.
func readable(head []byte) bool { return IsSQLite(head) || begins("{")(head) || begins("[")(head) }

// IsSQLite looks for the magic string of SQLite (file format, section 1.3).
func IsSQLite(head []byte) bool { return bytes.HasPrefix(head, []byte("SQLite format 3\x00")) }

// besideXPlane reports whether a file is the shortened Chrome trace that JAX writes beside a
// profile.
func besideXPlane(path string) bool {
	stem, ok := strings.CutSuffix(path, ".trace.json.gz")
	if filepath.Base(path) == "perfetto_trace.json.gz" {
		stem, ok = filepath.Join(filepath.Dir(path), "*"), true
	}
	if !ok {
		return false
	}
	found, err := filepath.Glob(stem + ".xplane.pb*")
	return err == nil && len(found) > 0
}

// Head reads the beginning of a file, at most HeadSize bytes. A shorter file is not an error.
func Head(path string) ([]byte, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, HeadSize))
}

// endings are the endings of names of supported profiles.
var endings = []string{".json", ".json.gz", ".json.zst", ".sqlite", "_results.db", ".xplane.pb", ".xplane.pb.gz"}

// runs are the endings of what rocprofv3 writes for one run with several output formats, the most
// complete first. The last two are not supported.
var runs = []string{"_results.json", "_results.db", "_kernel_trace.csv", "_results.pftrace"}

// Endings lists the endings of names of profiles.
func Endings() []string { return slices.Clone(endings) }

// InFolder reports whether a file of a folder should be read, by its name: profiles, and reports
// that need an export first, so that the user learns that they were not read. A report beside its
// export is skipped, and so is a run of rocprofv3 beside the same in a more complete format.
func InFolder(path string) bool {
	for i, end := range runs {
		if stem, ok := strings.CutSuffix(path, end); ok {
			return !slices.ContainsFunc(runs[:i], func(better string) bool {
				_, err := os.Stat(stem + better)
				return err == nil
			})
		}
	}
	if besideXPlane(path) {
		return false
	}
	if slices.ContainsFunc(endings, func(end string) bool { return strings.HasSuffix(path, end) }) {
		return true
	}
	for _, k := range kinds {
		for _, end := range k.ends {
			if stem, ok := strings.CutSuffix(path, end); ok {
				_, err := os.Stat(stem + ".sqlite")
				return err != nil
			}
		}
	}
	return false
}
