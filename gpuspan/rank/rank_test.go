// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rank_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/otelgpu/otelgpu/gpuspan/rank"
)

func detect(env map[string]string) (map[string]string, error) {
	res, err := rank.Detector{Getenv: func(k string) string { return env[k] }}.Detect(context.Background())
	got := map[string]string{}
	for _, a := range res.Attributes() {
		got[string(a.Key)] = a.Value.Type().String() + " " + a.Value.String()
	}
	return got, err
}

func want(id string, numbers ...int) map[string]string {
	m := map[string]string{}
	if id != "" {
		m["gpu.job.id"] = "STRING " + id
	}
	for i, k := range []string{"gpu.job.rank", "gpu.job.local_rank", "gpu.job.world_size"} {
		if i < len(numbers) && numbers[i] >= 0 {
			m[k] = fmt.Sprint("INT64 ", numbers[i])
		}
	}
	return m
}

func TestLaunchers(t *testing.T) {
	for name, c := range map[string]struct{ env, want map[string]string }{
		"no job": {nil, want("")},
		"torchrun": {
			map[string]string{"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "none"},
			want("", 3, 1, 8),
		},
		"torchrun in srun": {map[string]string{
			"RANK": "13", "LOCAL_RANK": "5", "WORLD_SIZE": "16", "TORCHELASTIC_RUN_ID": "run",
			"SLURM_JOB_ID": "4711", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2",
		}, want("4711/run", 13, 5, 16)},
		"srun": {map[string]string{
			"SLURM_JOB_ID": "4711", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "64", "SLURM_STEP_NUM_TASKS": "8",
		}, want("4711", 5, 1, 8)},
		"srun in an allocation": {map[string]string{
			"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3", "SLURM_PROCID": "5",
		}, want("4711/3", 5)},
		"torchrun in an allocation": {map[string]string{
			"RANK": "1", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3", "TORCHELASTIC_RUN_ID": "none",
			"MASTER_ADDR": "node7", "MASTER_PORT": "29500",
		}, want("4711/node7:29500", 1)},
		"mpirun in an allocation": {map[string]string{
			"OMPI_COMM_WORLD_RANK": "2", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3", "PMIX_NAMESPACE": "prterun-node7-81@1",
		}, want("4711/prterun-node7-81@1", 2)},
		"older mpirun in an allocation": {map[string]string{
			"OMPI_COMM_WORLD_RANK": "2", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3",
		}, want("4711", 2)},
		"salloc": {map[string]string{"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "64"}, want("4711")},
		"mpirun": {map[string]string{
			"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
			"OMPI_COMM_WORLD_SIZE": "4", "PBS_JOBID": "9.host",
		}, want("9.host", 2, 0, 4)},
		"mpiexec":       {map[string]string{"PMI_RANK": "2", "PMI_SIZE": "4"}, want("", 2, -1, 4)},
		"elastic":       {map[string]string{"TORCHELASTIC_RUN_ID": " run ", "RANK": "0"}, want("run", 0)},
		"single worker": {map[string]string{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}, want("", 0, 0, 1)},
	} {
		got, err := detect(c.env)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

func TestInvalidValuesAreOmittedAndNamed(t *testing.T) {
	got, err := detect(map[string]string{"RANK": "two", "LOCAL_RANK": "-1", "WORLD_SIZE": "8"})
	require.ErrorIs(t, err, resource.ErrPartialResource)
	require.ErrorContains(t, err, "RANK must be a number from 0, found \"two\"")
	require.ErrorContains(t, err, "LOCAL_RANK must be a number from 0, found \"-1\"")
	require.Equal(t, want("", -1, -1, 8), got)
	got, err = detect(map[string]string{"RANK": "8", "WORLD_SIZE": "8", "LOCAL_RANK": "9"})
	require.ErrorContains(t, err, "RANK is 8 of a world size of 8")
	require.ErrorContains(t, err, "LOCAL_RANK is 9 of a world size of 8")
	require.Equal(t, want("", -1, -1, 8), got)
}

func TestContradictionsAreNamed(t *testing.T) {
	got, err := detect(map[string]string{"RANK": "1", "LOCAL_RANK": "2", "WORLD_SIZE": "8"})
	require.ErrorContains(t, err, "LOCAL_RANK is 2 and RANK is 1")
	require.Equal(t, want("", 1, -1, 8), got)

	both := map[string]string{"RANK": "1", "WORLD_SIZE": "4", "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}
	got, err = detect(both)
	require.ErrorIs(t, err, resource.ErrPartialResource)
	require.ErrorContains(t, err, "RANK is 1 and SLURM_PROCID is 2, both of a world size of 4 (RANK is used)")
	require.Equal(t, want("", 1, -1, 4), got)

	both["TORCHELASTIC_RUN_ID"] = "run" // a rendezvous reassigns ranks
	_, err = detect(both)
	require.NoError(t, err)
	delete(both, "TORCHELASTIC_RUN_ID")
	both["SLURM_PROCID"] = "1"
	_, err = detect(both)
	require.NoError(t, err)
	// SLURM counts launchers, not ranks.
	both["SLURM_NTASKS"] = "2"
	both["SLURM_PROCID"] = "0"
	_, err = detect(both)
	require.NoError(t, err)
}

func ExampleDetector() {
	env := map[string]string{"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8", "SLURM_JOB_ID": "4711"}
	res, err := resource.New(context.Background(), resource.WithDetectors(
		rank.Detector{Getenv: func(k string) string { return env[k] }}))
	fmt.Println(res, err)
	// Output: gpu.job.id=4711,gpu.job.local_rank=3,gpu.job.rank=3,gpu.job.world_size=8 <nil>
}
