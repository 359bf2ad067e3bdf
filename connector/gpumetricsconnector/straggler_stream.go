// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/semconv"
)

// jobResource is the resource of a job's scores, which belong to no rank: its service and job.
func (a *aggregator) jobResource(key jobKey, j *job, now int64) *resource {
	attrs := pcommon.NewMap()
	if key.service != "" {
		attrs.PutStr(string(semconv.ServiceNameKey), key.service)
	}
	attrs.PutStr(string(semconv.GPUJobIDKey), key.job)
	r := a.resource(attrs)
	r.seen = now
	if j.newest <= uint64(now+int64(future)) {
		r.newest = max(r.newest, j.newest)
	}
	return r
}

func (r *resource) stragglerStream(st *settings, id metricID, key jobKey, rank int64, section string, j *job) *stream {
	attrs := pcommon.NewMap()
	attrs.PutStr(string(semconv.GPUJobIDKey), key.job)
	attrs.PutInt(string(semconv.GPUJobRankKey), rank)
	attrs.PutStr(string(semconv.GPUOperationNameKey), key.loop)
	if section != "" {
		attrs.PutStr(string(semconv.GPUStragglerSectionKey), section)
	}
	return r.families[id].get(st, attrs, j.newest)
}
