// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/rank"
	"github.com/otelgpu/otelgpu/internal/rankname"
	"github.com/otelgpu/otelgpu/semconv"
)

// environment reads the host's name and the variables under which the profiler and the program ran.
func (c *collect) environment(ctx context.Context) error {
	c.variables = map[string]string{}
	set := func(key, value string) {
		if len(c.variables) < maxVariables {
			c.variables[key] = value
		}
	}
	if err := c.db.each(ctx, tableSystem, []string{"name", "devStateName", "value"}, func(r []any) error {
		switch name, value := word(r[0]), word(r[2]); {
		case name == "Hostname":
			c.p.Meta.Host = value
		case name == "OsDescription":
			c.p.Meta.Windows = strings.Contains(value, "Windows")
		case name == "DeviceEnvironment", word(r[1]) == "DeviceEnvironment": // of the profiler: A=1;B=2
			for v := range strings.SplitSeq(value, ";") {
				if k, v, ok := strings.Cut(v, "="); ok {
					set(k, v)
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return c.db.each(ctx, tableCapture, []string{"name", "value"}, func(r []any) error {
		if strings.HasSuffix(word(r[0]), ":ENVIRONMENT_VARIABLE") { // of the program: A="1"
			if k, v, ok := strings.Cut(word(r[1]), "="); ok {
				set(k, strings.Trim(v, `"`))
			}
		}
		return nil
	})
}

// maxVariables bounds an environment.
const maxVariables = 1 << 12

// job sets the job and rank of the file: from the environment by gpuspan/rank, otherwise the rank
// from the file's name. A file with several processes contains several ranks, as of torchrun under
// one profiler, and does not state which.
func (c *collect) job(path string) {
	res, err := rank.Detector{Getenv: func(k string) string { return c.variables[k] }}.Detect(context.Background())
	if err != nil {
		c.p.Faults = append(c.p.Faults, err.Error())
	}
	m := &c.p.Meta
	value := func(k attribute.Key) (int64, bool) {
		v, ok := res.Set().Value(k)
		return v.AsInt64(), ok
	}
	if v, ok := res.Set().Value(semconv.GPUJobIDKey); ok {
		m.JobID = v.AsString()
	}
	if len(c.processes) != 1 {
		return
	}
	if m.Rank, m.HasRank = value(semconv.GPUJobRankKey); m.HasRank {
		m.LocalRank, m.HasLocalRank = value(semconv.GPUJobLocalRankKey)
		m.WorldSize, _ = value(semconv.GPUJobWorldSizeKey)
	} else {
		m.Rank, m.HasRank = rankname.Of(path)
	}
}
