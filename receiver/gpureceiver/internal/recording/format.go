// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package recording is the file format of recorded device data, `.gpurec`.
//
// A recording is one zstd stream (RFC 8878; any number of frames) of lines of UTF-8 text, each a JSON object.
//
//	line 1      {"format":"otelgpu-recording","version":1,"source":"dcgm","host":"n1","start":1764000000000000000,"interval":100000000}
//	devices     {"devices":[{"id":"GPU-…","name":"gpu0","model":"NVIDIA H200",…}]}
//	sample      {"d":0,"t":1764000000100000000,"v":{"energy":123.4,"power":312.5}}
//	event       {"d":0,"t":1764000000150000000,"e":"xid","code":79,"count":1}
//
// A devices line is the list that the index d of later lines refers to; it can occur again when the list changes. t is
// the time of the measurement in unix nanoseconds; samples of one device come in order of time for each quantity. The
// names in v are those of gpudata.Quantity, in its base units; e is xid, ecc_corrected or ecc_uncorrected (what can be
// derived from samples, such as throttling, is not written).
//
// Version 1 readers ignore keys and names that they do not know, so fields can be added; the version is raised when an
// old reader would misread. The stream is flushed every second: a file that was cut off is readable up to there.
package recording

import "github.com/otelgpu/otelgpu/extension/gpusamplesextension"

// Format and Version are what the first line says.
const (
	Format  = "otelgpu-recording"
	Version = 1
)

// Header is the first line.
type Header struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	Source   string `json:"source"`
	Host     string `json:"host,omitempty"`
	Start    int64  `json:"start"`              // unix ns
	Interval int64  `json:"interval,omitempty"` // asked sampling interval, ns
}

// line is any line but the first.
type line struct {
	Devices []gpusamplesextension.Device `json:"devices,omitempty"`
	D       int                          `json:"d"`
	T       int64                        `json:"t"`
	V       map[string]float64           `json:"v,omitempty"`
	E       string                       `json:"e,omitempty"`
	Code    int64                        `json:"code,omitempty"`
	Count   int64                        `json:"count,omitempty"`
}

var eventNames = map[gpusamplesextension.EventKind]string{
	gpusamplesextension.EventXID:            "xid",
	gpusamplesextension.EventECCCorrected:   "ecc_corrected",
	gpusamplesextension.EventECCUncorrected: "ecc_uncorrected",
}
