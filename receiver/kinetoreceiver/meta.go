// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
	"github.com/otelgpu/otelgpu/semconv"
)

// metaReader collects the fields of the top level.
type metaReader struct {
	meta    event.Meta
	maker   maker
	faults  []string
	attempt string
}

// maker is the vendor of a file's devices, which implies what timed them.
type maker uint8

const (
	makerUnknown maker = iota
	makerOther
	makerNVIDIA
	makerAMD
)

// maxMeta bounds a field that is read; PyTorch's own are below 100 kB.
const maxMeta = 4 << 20

func (m *metaReader) field(key string, v []byte) {
	if len(v) > maxMeta {
		return
	}
	switch key {
	case "baseTimeNanoseconds":
		if n, ok := chromejson.Int(v); ok {
			m.meta.Base = n
		} else {
			m.faults = append(m.faults, "baseTimeNanoseconds is not a number")
		}
	case "deviceProperties":
		m.devices(v)
	case "distributedInfo":
		m.distributed(v)
	case "traceName": // the path under which PyTorch wrote the file
		m.meta.Windows = strings.Contains(text(v), `\`)
	case "host_name", "hostname":
		m.meta.Host = text(v)
	case "gpu.job.id":
		m.meta.JobID = text(v)
	case "mast_job_name":
		m.meta.JobID = cmp.Or(m.meta.JobID, text(v))
	case "mast_job_attempt":
		m.attempt = text(v)
	case "service.name":
		m.meta.Service = text(v)
	case "traceparent":
		if t := text(v); emit.ParseTraceParent(t) == nil {
			m.meta.TraceParent = t
		} else {
			m.faults = append(m.faults, "traceparent in the metadata is not valid")
		}
	case "WARNING", "ERROR": // what Kineto logged, among it how many records CUPTI dropped
		m.warnings(v)
	case "resource_attributes":
		m.resourceObject(v)
	case "OTEL_RESOURCE_ATTRIBUTES":
		m.resourceList(text(v))
	case "hip_runtime_version", "hip_driver_version", "roctracer_version":
		m.maker = makerAMD
	case "cuda_runtime_version", "cuda_driver_version", "cupti_version":
		m.maker = max(m.maker, makerNVIDIA)
	}
}

// warnings reads a list of messages; others than those on lost records are the profiler's affair.
func (m *metaReader) warnings(v []byte) {
	var list []string
	if json.Unmarshal(v, &list) != nil {
		list = []string{text(v)}
	}
	for _, w := range list {
		if vocabulary.LosesRecords(w) {
			m.meta.Dropped = finding.Clip(strings.TrimSpace(w))
			m.faults = append(m.faults, "Kineto: "+m.meta.Dropped)
			return
		}
	}
}

func (m *metaReader) devices(v []byte) {
	var list []struct {
		ID   int64  `json:"id"`
		Name string `json:"name"`
	}
	if json.Unmarshal(v, &list) != nil {
		m.faults = append(m.faults, "deviceProperties cannot be read")
		return
	}
	limits := limitsOf(v)
	for i, d := range list {
		m.meta.Devices = append(m.meta.Devices, event.Device{Ordinal: d.ID, Model: d.Name, Limits: limits[i]})
		switch name := strings.ToUpper(d.Name); {
		case strings.Contains(name, "AMD"), strings.Contains(name, "INSTINCT"):
			m.maker = makerAMD
		case strings.Contains(name, "NVIDIA"), strings.Contains(name, "TESLA"):
			m.maker = max(m.maker, makerNVIDIA)
		}
	}
}

// limitsOf reads what limits the blocks on each device of deviceProperties. Fields that are missing
// or no integers stay 0, which is unknown.
func limitsOf(v []byte) []occupancy.Device {
	var list []struct {
		Multiprocessors int64 `json:"numSms"`
		Threads         int64 `json:"maxThreadsPerMultiprocessor"`
		Registers       int64 `json:"regsPerMultiprocessor"`
		SharedMemory    int64 `json:"sharedMemPerMultiprocessor"`
		WarpSize        int64 `json:"warpSize"`
		Major           int64 `json:"computeMajor"`
		Minor           int64 `json:"computeMinor"`
	}
	_ = json.Unmarshal(v, &list) // what has another type is omitted
	out := make([]occupancy.Device, len(list))
	for i, d := range list {
		out[i] = occupancy.Device{
			Multiprocessors: d.Multiprocessors, Threads: d.Threads, Registers: d.Registers, SharedMemory: d.SharedMemory,
			WarpSize: d.WarpSize, Major: d.Major, Minor: d.Minor,
		}
	}
	return out
}

// call determines the vendor of a runtime call. ROCm's calls have the category cuda_runtime, too.
func (m *metaReader) call(cat, name []byte) {
	switch {
	case m.maker != makerUnknown:
	case bytes.HasPrefix(name, []byte("hip")):
		m.maker = makerAMD
	case bytes.HasPrefix(name, []byte("cu")):
		m.maker = makerNVIDIA
	case !bytes.HasPrefix(cat, []byte("cuda")):
		m.maker = makerOther
	}
}

func (m *metaReader) distributed(v []byte) {
	chromejson.Fields(v, func(k, v []byte) bool {
		switch string(k) {
		case "rank":
			m.meta.HasRank = setInt(&m.meta.Rank, v)
		case "world_size":
			setInt(&m.meta.WorldSize, v)
		case "local_rank":
			m.meta.HasLocalRank = setInt(&m.meta.LocalRank, v)
		}
		return true
	})
}

func (m *metaReader) resource(k, v string) {
	if k == "" || v == "" {
		return
	}
	switch k {
	case "service.name":
		m.meta.Service = v
		return
	case "gpu.job.id":
		m.meta.JobID = v
		return
	}
	if m.meta.Resource == nil {
		m.meta.Resource = map[string]string{}
	}
	if len(m.meta.Resource) < maxResource {
		m.meta.Resource[k] = v
	}
}

// maxResource bounds the resource attributes that a file may bring.
const maxResource = 128

func (m *metaReader) resourceObject(v []byte) {
	chromejson.Fields(v, func(k, v []byte) bool {
		if len(v) > 0 && v[0] == '"' {
			m.resource(string(chromejson.Text(k)), text(v))
		} else if len(v) > 0 && v[0] != '{' && v[0] != '[' {
			m.resource(string(chromejson.Text(k)), string(v))
		}
		return true
	})
}

// resourceList reads the form of the environment variable: k=v,k=v.
func (m *metaReader) resourceList(s string) {
	for kv := range strings.SplitSeq(s, ",") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m.resource(strings.TrimSpace(k), strings.TrimSpace(v))
		}
	}
}

// result returns the metadata once all fields were seen.
func (m *metaReader) result() event.Meta {
	if m.meta.JobID != "" && m.attempt != "" && m.attempt != "0" {
		m.meta.JobID += "/" + m.attempt
	}
	// The application's own statement overrides PyTorch's process group.
	if n, err := strconv.ParseInt(m.meta.Resource[string(semconv.GPUJobRankKey)], 10, 64); err == nil {
		m.meta.Rank, m.meta.HasRank = n, true
	}
	switch m.maker {
	case makerNVIDIA:
		m.meta.TimingSource = semconv.GPUTimingSourceCupti
	case makerAMD:
		m.meta.TimingSource = semconv.GPUTimingSourceRoctracer
	}
	return m.meta
}
