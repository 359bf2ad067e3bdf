# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Detects the rank of this process in a distributed job from the environment variables of launchers."""

from __future__ import annotations

import os
import socket
from typing import Dict, Optional, Tuple, Union

from . import _names as n
from ._runtime import runtime

# Variables of rank, rank on the host, and number of ranks; the first launcher that sets a rank supplies all three:
# torchrun within srun sets both, and Slurm then counts launchers. The same as gpuspan/rank in Go.
_LAUNCHERS = (
    (("RANK",), ("LOCAL_RANK",), ("WORLD_SIZE",)),  # torchrun
    (("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_SIZE",)),  # Open MPI
    (("PMI_RANK",), ("MPI_LOCALRANKID",), ("PMI_SIZE",)),  # MPICH, Intel MPI
    (("SLURM_PROCID",), ("SLURM_LOCALID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
)
# Jobs of batch systems. Several runs can share one.
_ALLOCATIONS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_LOCAL = ("localhost", "127.0.0.1", "::1")


def job() -> Dict[str, Union[str, int]]:
    """Returns resource attributes of this process: gpu.job.id, .rank, .local_rank and .world_size, if the launcher
    sets them.

        Resource.create({"service.name": "train", **otelgpu.job()})

    Ranks with the same job ID are compared. It is the batch system's job and the run in it, such as 4711/5f3c: torchrun's
    run ID, which --standalone and --rdzv-id set, otherwise the rendezvous address, otherwise the namespace of the MPI job
    or the step of Slurm. OTEL_RESOURCE_ATTRIBUTES=gpu.job.id=RUN sets another. Invalid values are omitted and logged.
    """
    out: Dict[str, Union[str, int]] = {}
    allocation = next((v for v in map(_value, _ALLOCATIONS) if v), "")
    parts = [part for part in (allocation, _run()) if part]
    if parts:
        out[n.JOB_ID] = "/".join(parts)
    for names in _LAUNCHERS:
        if any(_value(name) for name in names[0]):
            rank, local, size = _number(names[0], 0), _number(names[1], 0), _number(names[2], 1)
            for key, v in ((n.JOB_RANK, rank), (n.JOB_LOCAL_RANK, local), (n.JOB_WORLD_SIZE, size)):
                if v is None:
                    continue
                if key != n.JOB_WORLD_SIZE and size is not None and v >= size:
                    runtime().trouble("the launcher's environment", f"{key} is {v} of a world size of {size}")
                    continue
                out[key] = v
            break
    return out


def _run() -> str:
    """Returns what distinguishes this run from others in the same allocation of a batch system."""
    run = _value("TORCHELASTIC_RUN_ID")
    if run not in ("", "none"):  # torchrun's placeholder
        return run
    host, port = _value("MASTER_ADDR"), _value("MASTER_PORT")
    if host and port:  # the same for all ranks
        return f"{socket.gethostname() if host in _LOCAL else host}:{port}"
    namespace = _value("PMIX_NAMESPACE")  # of an mpirun, or of an srun with PMIx
    if namespace:
        return namespace
    ranked = next((names[0] for names in _LAUNCHERS if any(map(_value, names[0]))), ())
    return _value("SLURM_STEP_ID") if ranked == _LAUNCHERS[-1][0] else ""  # mpirun has a separate step on each node


def _value(name: str) -> str:
    return os.environ.get(name, "").strip()


def _number(names: Tuple[str, ...], least: int) -> Optional[int]:
    for name in names:
        value = _value(name)
        if not value:
            continue
        if value.isascii() and value.isdigit() and int(value) >= least:
            return int(value)
        runtime().trouble("the launcher's environment", f"{name} must be a number from {least}, found {value!r}")
        return None
    return None
