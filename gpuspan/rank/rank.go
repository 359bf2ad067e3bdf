// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package rank detects which process of a distributed job this one is, from what launchers put into the environment,
// as an OpenTelemetry resource:
//
//	attribute            torchrun            Open MPI                     MPICH, Intel MPI   Slurm
//	gpu.job.rank         RANK                OMPI_COMM_WORLD_RANK         PMI_RANK           SLURM_PROCID
//	gpu.job.local_rank   LOCAL_RANK          OMPI_COMM_WORLD_LOCAL_RANK   MPI_LOCALRANKID    SLURM_LOCALID
//	gpu.job.world_size   WORLD_SIZE          OMPI_COMM_WORLD_SIZE         PMI_SIZE           SLURM_STEP_NUM_TASKS, SLURM_NTASKS
//
// The first launcher, from the left, that gives a rank decides all three: a torchrun within an srun has both, and
// Slurm's number then counts launchers, not workers. gpu.job.id is SLURM_JOB_ID, else TORCHELASTIC_RUN_ID (unless it is
// torchrun's placeholder "none"), PBS_JOBID or LSB_JOBID.
//
//	res, err := resource.New(ctx, resource.WithFromEnv(), resource.WithDetectors(rank.Detector{}))
package rank

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/otelgpu/otelgpu/semconv"
)

// Detector is a resource.Detector. The zero Detector reads the environment of the process.
type Detector struct {
	// Getenv replaces os.Getenv; for tests, and for launchers with variables of their own.
	Getenv func(string) string
}

var _ resource.Detector = Detector{}

// launcher names variables; of several, the first that is set counts.
type launcher struct{ rank, local, size []string }

var launchers = []launcher{
	{[]string{"RANK"}, []string{"LOCAL_RANK"}, []string{"WORLD_SIZE"}},
	{[]string{"OMPI_COMM_WORLD_RANK"}, []string{"OMPI_COMM_WORLD_LOCAL_RANK"}, []string{"OMPI_COMM_WORLD_SIZE"}},
	{[]string{"PMI_RANK"}, []string{"MPI_LOCALRANKID"}, []string{"PMI_SIZE"}},
	{[]string{"SLURM_PROCID"}, []string{"SLURM_LOCALID"}, []string{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}},
}

var jobIDs = []string{"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PBS_JOBID", "LSB_JOBID"}

// Detect implements resource.Detector. Outside of a job the resource is empty. A value that is no number, or a rank that
// is not below the world size, is left out, with an error that wraps resource.ErrPartialResource: the rest holds.
func (d Detector) Detect(context.Context) (*resource.Resource, error) {
	getenv := d.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	first := func(names []string) (name, value string) {
		for _, n := range names {
			if v := strings.TrimSpace(getenv(n)); v != "" {
				return n, v
			}
		}
		return "", ""
	}
	var attributes []attribute.KeyValue
	var errs []error
	number := func(names []string, least int64) (int64, bool) {
		name, value := first(names)
		if name == "" {
			return 0, false
		}
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n < least {
			errs = append(errs, fmt.Errorf("%s must be a number from %d, found %q", name, least, value))
			return 0, false
		}
		return n, true
	}
	for _, id := range jobIDs {
		if v := strings.TrimSpace(getenv(id)); v != "" && v != "none" {
			attributes = append(attributes, semconv.GPUJobIDKey.String(v))
			break
		}
	}
	for _, l := range launchers {
		name, value := first(l.rank)
		if name == "" {
			continue
		}
		rank, hasRank := number(l.rank, 0)
		size, hasSize := number(l.size, 1)
		local, hasLocal := number(l.local, 0)
		if hasRank && hasSize && rank >= size {
			errs = append(errs, fmt.Errorf("%s is %s of a world size of %d", name, value, size))
			hasRank = false
		}
		if hasLocal && hasSize && local >= size {
			errs = append(errs, fmt.Errorf("local rank is %d of a world size of %d", local, size))
			hasLocal = false
		}
		if hasRank {
			attributes = append(attributes, semconv.GPUJobRankKey.Int64(rank))
		}
		if hasLocal {
			attributes = append(attributes, semconv.GPUJobLocalRankKey.Int64(local))
		}
		if hasSize {
			attributes = append(attributes, semconv.GPUJobWorldSizeKey.Int64(size))
		}
		break
	}
	res := resource.Empty()
	if len(attributes) > 0 {
		res = resource.NewWithAttributes(semconv.SchemaURL, attributes...)
	}
	if len(errs) > 0 {
		return res, fmt.Errorf("%w: %w", resource.ErrPartialResource, errors.Join(errs...))
	}
	return res, nil
}
