// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profilefile_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profilefile"
)

func TestUnsupportedFormatsAreNamedWithARemedy(t *testing.T) {
	for name, c := range map[string]struct{ head, want string }{
		"a/run.nsys-rep": {"NVIDIA", "it is a report of Nsight Systems (nsys export --type sqlite run.nsys-rep)"},
		"run.qdrep":      {"\x01\x02", "it is a report of Nsight Systems (nsys export --type sqlite run.qdrep)"},
		"t.json":         {"\xff\xfe{\x00", "it is text in UTF-16 (iconv -f UTF-16 -t UTF-8 t.json)"},
		"u.json":         {"{\x00\"\x00", "it is text in UTF-16 (iconv -f UTF-16LE -t UTF-8 u.json)"},
		"h.h5":           {"\x89HDF\r\n\x1a\n", "it is HDF5, as of nsys export --type hdf (nsys export --type sqlite)"},
		"b.json.bz2":     {"BZh91AY", "it is bzip2 (bunzip2 b.json.bz2)"},
		"x.json.xz":      {"\xfd7zXZ\x00", "it is xz (unxz x.json.xz)"},
		"lfs.json":       {"version https://git-lfs.github.com/spec/v1\n", "it is a pointer of Git LFS (git lfs pull)"},
		"run.tar":        {strings.Repeat("\x00", 257) + "ustar\x00", "it is a tar archive (unpack it)"},
		"short.tar":      {strings.Repeat("\x00", 257), ""},
		"run.zip":        {"PK\x03\x04", "it is a ZIP archive (unpack it)"},
		"kernels.csv": {
			"Name,Start_Timestamp,End_Timestamp\n", "it is a table in CSV " +
				"(for ROCm: rocprofv3 --output-format json; for Nsight Systems: nsys export --type sqlite)",
		},
		"7_kernel_trace.csv": {
			`"Kind","Agent_Id","Correlation_Id","Start_Timestamp"` + "\n", "it is a table of rocprofv3 in CSV " +
				"(record with rocprofv3 --output-format json)",
		},
		"7_results.pftrace": {
			"\x0a\x10", "it is a Perfetto trace (for ROCm: record with rocprofv3 --output-format json)",
		},
		"other.csv":          {"Name,Value\nStart_Timestamp,1\n", ""},
		"notes":              {"\nabout xplanes", ""},
		"device.txt":         {"of /device:GPU:0", ""},
		"trace.json":         {`{"traceEvents"`, ""},
		"misnamed.nsys-rep":  {"SQLite format 3\x00", ""},
		"misnamed.xplane.pb": {"[{", ""},
		"unknown":            {"hello", ""},
		"empty":              {"", ""},
	} {
		assert.Equal(t, c.want, profilefile.Foreign(name, []byte(c.head)), name)
	}
}

func TestDocumentsThatAreNoTracesAreNamedByTheirKeys(t *testing.T) {
	for head, want := range map[string]string{
		`{"nodes": [{"name": "[pytorch|profiler|execution_graph|thread]"}]}`: "it is an execution trace of PyTorch, as for " +
			"Chakra, which has no times of a device (torch.profiler.profile(...).export_chrome_trace)",
		`{"schema": "1.0", "nodes": [{"name": "load"}]}`: "",
		`{"schema": "1.0", "traceEvents": []}`:           "",
		`{"frame": {}, "metrics": {}}`:                   "",
		`{"globalVid": 1}`:                               "it is JSON of Nsight Systems (nsys export --type sqlite)",
		`{"resourceSpans": []}`:                          "it is OTLP (otelcol-gpu check x.json)",
	} {
		assert.Equal(t, want, profilefile.Document("a/x.json", []byte(head)), head)
	}
}

func TestReportsOfAFolderAreReadOnceTheyAreExported(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("done.sqlite"), nil, 0o600))
	assert.True(t, profilefile.InFolder(at("a.json.gz")))
	assert.True(t, profilefile.InFolder(at("done.sqlite")))
	assert.True(t, profilefile.InFolder(at("77_results.db")), "as rocprofv3 calls them")
	assert.False(t, profilefile.InFolder(at("users.db")))
	assert.True(t, profilefile.InFolder(at("open.nsys-rep")), "it is refused by name, with the command that exports it")
	assert.False(t, profilefile.InFolder(at("done.nsys-rep")), "its export is read")
	assert.False(t, profilefile.InFolder(at("notes.txt")))
	assert.False(t, profilefile.InFolder(at("steps.csv")), "tables are refused by their content, and not looked for")
}

func TestARunOfRocprofv3IsReadFromItsMostCompleteFormat(t *testing.T) {
	dir := t.TempDir()
	files := []string{"7_results.json", "7_results.db", "7_kernel_trace.csv", "7_results.pftrace"}
	for i, file := range slices.Backward(files) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
		for j, name := range files[i:] {
			assert.Equal(t, j == 0, profilefile.InFolder(filepath.Join(dir, name)), "%s beside %v", name, files[i:])
		}
	}
	assert.True(t, profilefile.InFolder(filepath.Join(dir, "8_kernel_trace.csv")), "another run")
	assert.False(t, profilefile.InFolder(filepath.Join(dir, "8_hip_api_trace.csv")), "the table of kernels represents the run")
}

func TestHeadOfAShortFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "short")
	require.NoError(t, os.WriteFile(path, []byte("ab"), 0o600))
	head, err := profilefile.Head(path)
	require.NoError(t, err)
	assert.Equal(t, "ab", string(head))
	_, err = profilefile.Head(path + "er")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestXPlaneIsRecognizedByContentOrName(t *testing.T) {
	for head, want := range map[string]bool{
		"\x0a\x10\x12\x0e/host:metadata": true, "\x0a\x10": false, "{": false, "": false,
	} {
		assert.Equal(t, want, profilefile.IsXPlane("a.pb", []byte(head)), "%q", head)
	}
	assert.True(t, profilefile.IsXPlane("vm.xplane.pb.gz", []byte("\x1f\x8b")))
	assert.False(t, profilefile.IsXPlane("vm.xplane.pb", []byte("{")), "JSON under a wrong name")
}

func TestTheTraceBesideAnXPlaneIsNotReadAgain(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"vm.xplane.pb", "vm.trace.json.gz", "perfetto_trace.json.gz", "other.trace.json.gz"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	for name, want := range map[string]bool{
		"vm.xplane.pb": true, "vm.trace.json.gz": false, "perfetto_trace.json.gz": false, "other.trace.json.gz": true,
	} {
		assert.Equal(t, want, profilefile.InFolder(filepath.Join(dir, name)), name)
	}
}
