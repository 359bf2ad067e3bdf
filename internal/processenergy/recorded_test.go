// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package processenergy

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// TestProcessesOfRecordedDriversHaveTheirEnergy replays the driver's answers of simulated schedules
// that another program wrote together with the true energies.
func TestProcessesOfRecordedDriversHaveTheirEnergy(t *testing.T) {
	for file, most := range map[string]float64{ // error of any process, percent of the active energy
		"equal-power": 2, "unequal-power": 3, "idle-gaps": 3, "come-and-go": 2, "mps": 3.2,
	} {
		t.Run(file, func(t *testing.T) {
			dir := recorded.Path(t, "per-process")
			var truth struct {
				Device float64            `json:"device_energy_J"`
				Idle   float64            `json:"idle_energy_J"`
				Active map[string]float64 `json:"process_active_energy_J"`
			}
			b, err := os.ReadFile(filepath.Join(dir, file+".truth.json"))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &truth))
			f, err := os.Open(filepath.Join(dir, file+".nvml.jsonl"))
			require.NoError(t, err)
			defer func() { _ = f.Close() }()

			d := NewDevice(0, keep)
			var first, last float64
			lines := bufio.NewScanner(f)
			for lines.Scan() {
				var l struct {
					Time    int64 `json:"t_us"`
					Samples []struct {
						PID  int64  `json:"pid"`
						Time int64  `json:"timeStamp"`
						SM   uint32 `json:"smUtil"`
					}
					Energy    float64           `json:"total_energy_mJ"`
					Power     float64           `json:"power_mW"`
					Processes []json.RawMessage `json:"compute_processes"`
				}
				require.NoError(t, json.Unmarshal(lines.Bytes(), &l))
				if first == 0 {
					// The recordings begin with the counter at 0.
					d.AddEnergy(l.Time*1000-1e9, 0)
					d.Add(Answer{Time: l.Time*1000 - 1e9, Contexts: true, Utilization: -1})
					first = 1
				}
				last = l.Energy / 1000
				d.AddEnergy(l.Time*1000, last)
				d.AddPower(l.Power/1000, len(l.Processes) > 0)
				a := Answer{Time: l.Time * 1000, Contexts: len(l.Processes) > 0, Utilization: -1}
				for _, s := range l.Samples {
					if sample, ok := OfPercent(Key{PID: s.PID}, s.Time*1000, s.SM); ok {
						a.Samples = append(a.Samples, sample)
					}
				}
				d.Add(a)
			}
			require.NoError(t, lines.Err())

			active := truth.Device - truth.Idle
			sum := d.Idle(true).Joules + d.Idle(false).Joules + d.Unattributed().Joules
			d.Processes(func(k Key, u Usage) {
				sum += u.Joules
				want := truth.Active[jsonNumber(k.PID)]
				off := math.Abs(u.Joules - want)
				t.Logf("%d: %.0f J of %.0f, %.2f %% of active, stated %.2f %%", k.PID, u.Joules, want, 100*off/active, 100*u.Error()/active)
				assert.LessOrEqual(t, off, u.Error(), "stated error of process %d", k.PID)
				assert.LessOrEqual(t, 100*off/active, most, "process %d", k.PID)
			})
			assert.InEpsilon(t, d.Total(), sum, 1e-9)
			t.Logf("idle %.0f of %.0f, rest %.0f, total %.0f of %.0f", d.Idle(true).Joules, truth.Idle, d.Unattributed().Joules, d.Total(), truth.Device)
		})
	}
}

func jsonNumber(n int64) string {
	b, _ := json.Marshal(n)
	return string(b)
}
