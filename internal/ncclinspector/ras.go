// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ncclinspector

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Member is a rank of a communicator.
type Member struct {
	Hash string
	Rank int
}

// Device is where a rank runs, as NCCL's RAS subsystem states it.
type Device struct {
	Host  string
	PID   int64
	Index int64 // of NVML
}

// String names the device.
func (d Device) String() string { return fmt.Sprintf("GPU %d of %s", d.Index, d.Host) }

// Devices are the devices of the ranks of a job.
type Devices map[Member]Device

// ReadRAS reads the answer of NCCL's RAS subsystem to STATUS in JSON (SET FORMAT json). What a terminal
// shows around the object, such as the answer to SET FORMAT, is ignored.
func ReadRAS(text []byte) (Devices, error) {
	var status struct {
		Communicators []struct {
			Hash  string `json:"hash"`
			Ranks []struct {
				Rank int    `json:"rank"`
				Host string `json:"host"`
				PID  int64  `json:"pid"`
				NVML *int64 `json:"nvml_dev"`
			} `json:"ranks"`
		} `json:"communicators"`
	}
	text = text[max(0, bytes.IndexByte(text, '{')):]
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&status); err != nil {
		return nil, fmt.Errorf("not a status of NCCL's RAS subsystem in JSON: %w", err)
	}
	d := Devices{}
	for _, c := range status.Communicators {
		for _, r := range c.Ranks {
			if r.NVML != nil && len(d) < maxMembers {
				d[Member{clip(c.Hash), r.Rank}] = Device{clip(r.Host), r.PID, *r.NVML}
			}
		}
	}
	return d, nil
}
