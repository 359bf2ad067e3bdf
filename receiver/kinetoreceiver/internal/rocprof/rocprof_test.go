// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rocprof

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/occupancy"
)

func TestFieldsAreSplitAtCommasOutsideOfQuotes(t *testing.T) {
	for line, want := range map[string][]string{
		`a,b`:                {"a", "b"},
		`a, b ,`:             {"a", "b", ""},
		``:                   {""},
		`,`:                  {"", ""},
		`"a,b",2`:            {"a,b", "2"},
		`"a ""b"", c",""`:    {`a "b", c`, ""},
		`"a" x,1`:            {"a", "1"},
		`"not closed, 2`:     {"not closed, 2"},
		`"f<""x"">(int, T)"`: {`f<"x">(int, T)`},
	} {
		var got []string
		for _, f := range split(nil, []byte(line)) {
			got = append(got, string(f))
		}
		assert.Equal(t, want, got, line)
	}
}

func TestTablesAreKnownByTheirColumns(t *testing.T) {
	for head, want := range map[string][2]bool{
		`"Kind","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"` + "\nx": {true, true},
		"Kernel_Name,Start_Timestamp,End_Timestamp":                                       {true, false},
		"Kernel_Name,Counter_Name,Correlation_Id,Start_Timestamp,End_Timestamp":           {false, true},
		"Function,Correlation_Id,Start_Timestamp,End_Timestamp":                           {false, true},
		"Name,Value": {false, false},
		"":           {false, false},
	} {
		assert.Equal(t, want, [2]bool{IsKernels([]byte(head)), IsTable([]byte(head))}, head)
	}
}

func TestDevicesAreFoundByTheLabelsOfAgents(t *testing.T) {
	var unknown, listed agents
	listed.list(0, false, "EPYC", occupancy.Device{})
	listed.list(4, true, "MI300X", occupancy.Device{})
	listed.list(6, true, "MI300X", occupancy.Device{})
	for label, want := range map[string][2]int64{ // the device without and with a list of agents; -1: none
		"Agent 4": {4, 0}, "Agent-6": {6, 1}, "4": {4, 0}, "GPU 1": {1, 1}, "GPU-0": {0, 0}, "CPU 0": {-1, -1},
		"Agent 0": {0, -1}, "Agent 5": {5, -1}, "": {-1, -1}, "Agent": {-1, -1}, "Agent 99999999999": {-1, -1},
	} {
		for i, a := range []*agents{&unknown, &listed} {
			device, ok := a.device(label)
			assert.Equal(t, want[i] >= 0, ok, "%q, list %d", label, i)
			if ok {
				assert.Equal(t, want[i], device, "%q, list %d", label, i)
			}
		}
	}
}
