# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
import socket

import pytest

import otelgpu
from otelgpu import _job

ID, RANK, LOCAL, SIZE = "gpu.job.id", "gpu.job.rank", "gpu.job.local_rank", "gpu.job.world_size"


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in _job._ALLOCATIONS + ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "PMIX_NAMESPACE", "SLURM_STEP_ID") + tuple(name for of in _job._LAUNCHERS for names in of for name in names):
        monkeypatch.delenv(name, raising=False)


# The same cases as in gpuspan/rank.
@pytest.mark.parametrize("env, want", [
    ({}, {}),
    ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "none"}, {RANK: 3, LOCAL: 1, SIZE: 8}),
    ({"RANK": "13", "LOCAL_RANK": "5", "WORLD_SIZE": "16", "TORCHELASTIC_RUN_ID": "run", "SLURM_JOB_ID": "4711",
      "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}, {ID: "4711/run", RANK: 13, LOCAL: 5, SIZE: 16}),
    ({"SLURM_JOB_ID": "4711", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "64",
      "SLURM_STEP_NUM_TASKS": "8"}, {ID: "4711", RANK: 5, LOCAL: 1, SIZE: 8}),
    ({"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "64"}, {ID: "4711"}),
    ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4", "PBS_JOBID": "9.host"},
     {ID: "9.host", RANK: 2, LOCAL: 0, SIZE: 4}),
    ({"PMI_RANK": "2", "PMI_SIZE": "4"}, {RANK: 2, SIZE: 4}),
    ({"TORCHELASTIC_RUN_ID": " run ", "RANK": "0"}, {ID: "run", RANK: 0}),
    ({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3", "SLURM_PROCID": "5"}, {ID: "4711/3", RANK: 5}),
    ({"RANK": "1", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3", "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "node7",
      "MASTER_PORT": "29500"}, {ID: "4711/node7:29500", RANK: 1}),
    ({"OMPI_COMM_WORLD_RANK": "2", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3", "PMIX_NAMESPACE": "prterun-node7-81@1"},
     {ID: "4711/prterun-node7-81@1", RANK: 2}),
    ({"OMPI_COMM_WORLD_RANK": "2", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3"}, {ID: "4711", RANK: 2}),
    ({"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}, {ID: socket.gethostname() + ":1"}),
])
def test_launchers(monkeypatch, env, want):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert otelgpu.job() == want


@pytest.mark.parametrize("env, said", [
    ({"RANK": "two", "WORLD_SIZE": "8"}, "RANK must be a number from 0, found 'two'"),
    ({"RANK": "8", "WORLD_SIZE": "8"}, "gpu.job.rank is 8 of a world size of 8"),
    ({"RANK": "-1", "WORLD_SIZE": "8"}, "RANK must be a number from 0, found '-1'"),
])
def test_what_makes_no_sense_is_left_out_and_said(monkeypatch, caplog, exporter, env, said):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert otelgpu.job() == {SIZE: 8}
    assert said in caplog.text
