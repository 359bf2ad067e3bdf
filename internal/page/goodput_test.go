// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func TestThePageHasTheAccountsOfJobs(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	m := NewWithClock(func() time.Time { return now })
	send := func(metric, job, bucket string, v float64) {
		md := pmetric.NewMetrics()
		x := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		x.SetName(metric)
		p := x.SetEmptySum().DataPoints().AppendEmpty()
		p.SetTimestamp(pcommon.NewTimestampFromTime(now))
		p.Attributes().PutStr("gpu.job.id", job)
		if bucket != "" {
			p.Attributes().PutStr("gpu.job.time.bucket", bucket)
			p.SetDoubleValue(v)
		} else {
			p.SetIntValue(int64(v))
		}
		m.Metrics(md)
	}
	send("gpu.job.time", "b", "idle", 3)
	send("gpu.job.time", "a", "productive", 10)
	send("gpu.job.time", "a", "lost", 2)
	send("gpu.job.time", "a", "productive", 8)
	send("gpu.job.restarts", "a", "", 1)
	send("gpu.job.time", "", "lost", 2)
	list := m.State(Query{}).Goodput
	assert.Equal(t, []string{"a", "b"}, []string{list[0].Job, list[1].Job})
	assert.Equal(t, map[string]float64{"productive": 8, "lost": 2}, list[0].Seconds)
	assert.Equal(t, int64(1), *list[0].Restarts)
	assert.Nil(t, list[1].Restarts)
	for i := range maxJobs {
		now = now.Add(time.Second)
		send("gpu.job.time", fmt.Sprintf("c%03d", i), "busy", 1)
	}
	list = m.State(Query{}).Goodput
	assert.Len(t, list, maxJobs)
	assert.Equal(t, "c000", list[0].Job, "the oldest were removed")
	now = now.Add(time.Hour)
	assert.Empty(t, m.State(Query{}).Goodput)
}
