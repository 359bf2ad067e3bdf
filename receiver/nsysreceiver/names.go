// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/internal/gputrace"
)

var (
	// PyTorch's emit_nvtx writes "aten::add, seq = 5, op_id = 7, sizes = [[2, 3]]".
	torchOperator = regexp.MustCompile(`^(.+?), (?:seq = -?\d+|op_id = \d+)(?:, .*)?$`)
	torchSizes    = regexp.MustCompile(`, sizes = (\[.*?\])(?:, \w+ = .*)?$`)
	stepName      = regexp.MustCompile(`^(?:ProfilerStep#|(?i:train[ _-]?)?(?i:step|iteration|iter)[ _#:=-]*)(\d+)$`)
	versioned     = regexp.MustCompile(`_v\d+(?:_ptsz|_ptds)?$`)
)

// rangeOf says what an NVTX range stands for: a numbered step, an operator of PyTorch, or an annotation.
func rangeOf(e *gputrace.Event, text string) (name string) {
	e.Kind = gputrace.KindAnnotation
	if m := stepName.FindStringSubmatch(text); m != nil {
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
			e.Kind, e.Detail.Step, e.Detail.HasStep = gputrace.KindStep, n, true
			return text
		}
	}
	if m := torchOperator.FindStringSubmatch(text); m != nil {
		e.Kind = gputrace.KindOperator
		if s := torchSizes.FindStringSubmatch(text); s != nil {
			e.Detail.Shapes = s[1]
		}
		return m[1]
	}
	if strings.HasPrefix(text, "aten::") {
		e.Kind = gputrace.KindOperator
		return text
	}
	rest, parent := gputrace.FindTraceParent(text)
	if parent != "" && gputrace.ParseTraceParent(parent) == nil {
		e.Detail.TraceParent = parent
		return rest
	}
	return text
}

// callName is the name of a runtime call without the version of its ABI.
func callName(s string) string { return versioned.ReplaceAllString(s, "") }

// direction is the value of gpu.copy.direction for CUPTI's kind of copy (CUpti_ActivityMemcpyKind), and where the
// host's memory is named: at the source, at the destination, or nowhere.
func direction(kind int64) (dir string, hostAtSource, hostAtDestination bool) {
	switch kind {
	case 1, 3: // HtoD, HtoA
		return "host_to_device", true, false
	case 2, 4: // DtoH, AtoH
		return "device_to_host", false, true
	case 5, 6, 7, 8: // AtoA, AtoD, DtoA, DtoD
		return "device_to_device", false, false
	case 9:
		return "host_to_host", false, false
	case 10:
		return "peer_to_peer", false, false
	case migrationIn:
		return "host_to_device", false, false
	case migrationOut:
		return "device_to_host", false, false
	case migrationBetween:
		return "peer_to_peer", false, false
	}
	return "", false, false
}

// Kinds of copies that are page migrations of unified memory, as the exporter numbers them (ENUM_CUDA_MEMOPER_TYPE).
const (
	migrationIn      = 11 // host to device
	migrationOut     = 12 // device to host
	migrationBetween = 13 // device to device
)

// userPrefetch is the cause of a migration that the program asked for (ENUM_CUDA_UNIF_MEM_MIGRATION): a copy as others.
const userPrefetch = 1

func migrates(kind int64) bool { return kind >= migrationIn && kind <= migrationBetween }

// memory is the value of gpu.copy.host_memory for CUPTI's kind of memory.
func memory(kind int64) string {
	switch kind {
	case 0:
		return "pageable"
	case 1:
		return "pinned"
	}
	return ""
}

var shortDirection = map[string]string{
	"host_to_device": "HtoD", "device_to_host": "DtoH", "device_to_device": "DtoD", "host_to_host": "HtoH",
	"peer_to_peer": "PtoP",
}

// copyName is the name that PyTorch's profiler gives the same copy.
func copyName(dir, mem string) string {
	short := shortDirection[dir]
	if mem == "managed" {
		return "Page migration " + short
	}
	host := map[string]string{"pageable": "Pageable", "pinned": "Pinned", "": "Host"}[mem]
	switch dir {
	case "host_to_device":
		return "Memcpy " + short + " (" + host + " -> Device)"
	case "device_to_host":
		return "Memcpy " + short + " (Device -> " + host + ")"
	case "host_to_host":
		return "Memcpy " + short + " (" + host + " -> " + host + ")"
	case "":
		return "Memcpy"
	}
	return "Memcpy " + short + " (Device -> Device)"
}
