// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/semconv"
)

// JobTime is the account of a job since it began: the metrics of the connector gpu_goodput.
type JobTime struct {
	Job     string             `json:"job"`
	Seconds map[string]float64 `json:"seconds"` // of all GPUs, by bucket
	// Restarts is how often its processes began again; omitted of jobs without spans.
	Restarts *int64 `json:"restarts,omitempty"`
	newest   int64  // unix s: of its newest point
}

// maxJobs bounds the accounts, of which the one with the oldest point is removed.
const maxJobs = 100

// jobPoint reads a point of gpu.job.time or gpu.job.restarts.
func (m *Model) jobPoint(name string, p pmetric.NumberDataPoint) {
	id, at := text(p, string(semconv.GPUJobIDKey)), p.Timestamp().AsTime().Unix()
	if id == "" || at > m.latest {
		return
	}
	j := m.jobs[id]
	if j == nil {
		if len(m.jobs) >= maxJobs {
			oldest := slices.MinFunc(slices.Collect(maps.Values(m.jobs)), func(a, b *JobTime) int {
				return cmp.Or(cmp.Compare(a.newest, b.newest), cmp.Compare(a.Job, b.Job))
			})
			delete(m.jobs, oldest.Job)
		}
		j = &JobTime{Job: id, Seconds: map[string]float64{}}
		m.jobs[id] = j
	}
	j.newest = max(j.newest, at)
	if name == semconv.GPUJobRestartsName {
		j.Restarts = new(p.IntValue())
	} else if bucket := text(p, string(semconv.GPUJobTimeBucketKey)); len(j.Seconds) < 64 {
		j.Seconds[bucket] = number(p)
	}
}

// jobsOf returns the accounts whose metrics still arrive.
func (m *Model) jobsOf(now int64) (list []JobTime) {
	maps.DeleteFunc(m.jobs, func(_ string, j *JobTime) bool { return j.newest < now-keptSeconds })
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		j := *m.jobs[id]
		j.Seconds = maps.Clone(j.Seconds)
		list = append(list, j)
	}
	return list
}
