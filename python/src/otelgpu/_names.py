# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Attribute and span names, as the registry (semconv/ in the repository) defines them. A test compares the two."""

from typing import Literal, get_args

OPERATION_TYPE = "gpu.operation.type"
OPERATION_CATEGORY = "gpu.operation.category"
OPERATION_OCCURRENCE = "gpu.operation.occurrence"
OPERATION_ITEMS = "gpu.operation.items"
OPERATION_ITEM_TYPE = "gpu.operation.item.type"
BATCH_SIZE = "gpu.batch.size"
BATCH_SHARE = "gpu.batch.share"
STREAM_ID = "gpu.stream.id"

COLLECTIVE_NAME = "gpu.collective.name"
COLLECTIVE_GROUP_ID = "gpu.collective.group.id"
COLLECTIVE_GROUP_NAME = "gpu.collective.group.name"
COLLECTIVE_GROUP_SIZE = "gpu.collective.group.size"
COLLECTIVE_PEER_RANK = "gpu.collective.peer.rank"
COLLECTIVE_SEQUENCE = "gpu.collective.sequence"

DURATION = "gpu.duration"
START_DELAY = "gpu.start.delay"
END_DELAY = "gpu.end.delay"
TIMING_SOURCE = "gpu.timing.source"
TIMING_STATUS = "gpu.timing.status"
TIMING_ERROR = "gpu.timing.error"

IO_SIZE = "gpu.io.size"
IO_READ_SIZE = "gpu.io.read.size"
IO_WRITE_SIZE = "gpu.io.write.size"
FLOP_COUNT = "gpu.flop.count"
FLOP_PRECISION = "gpu.flop.precision"
COPY_DIRECTION = "gpu.copy.direction"
COPY_HOST_MEMORY = "gpu.copy.host_memory"

STEP_INDEX = "gpu.step.index"
STEP_EPOCH = "gpu.step.epoch"
STEP_ITEMS = "gpu.step.items"
STEP_ITEM_TYPE = "gpu.step.item.type"
STEP_DURATION = "gpu.step.duration"
STEP_HOST_DURATION = "gpu.step.host.duration"
STEP_PHASE_DURATION = "gpu.step.phase.duration."  # and the phase
STEP_OVERLAP_DURATION = "gpu.step.overlap.duration"
STEP_OTHER_DURATION = "gpu.step.other.duration"
STEP_UNTIMED_COUNT = "gpu.step.untimed.count"
STEP_COVERED_DURATION = "gpu.step.covered.duration"
STEP_MODEL_FLOP_COUNT = "gpu.step.model.flop.count"
STEP_DEVICE_COUNT = "gpu.step.device.count"

JOB_ID = "gpu.job.id"
JOB_RANK = "gpu.job.rank"
JOB_LOCAL_RANK = "gpu.job.local_rank"
JOB_WORLD_SIZE = "gpu.job.world_size"

HW_ID = "hw.id"
HW_NAME = "hw.name"
HW_MODEL = "hw.model"
HW_VENDOR = "hw.vendor"
PCI_BDF = "gpu.pci.bdf"
DEVICE_ORDINAL = "gpu.device.ordinal"
ERROR_TYPE = "error.type"

OperationType = Literal["collective", "copy", "graph", "host", "kernel", "memset", "request", "section", "share", "step"]
Precision = Literal["bf16", "fp16", "fp32", "fp4", "fp64", "fp8", "int8", "tf32"]
CopyDirection = Literal["device_to_device", "device_to_host", "host_to_device", "host_to_host", "peer_to_peer"]
HostMemory = Literal["managed", "pageable", "pinned"]
Verbosity = Literal["default", "verbose", "debug"]

# What is recorded, from nothing to all; a section states from which on it is.
VERBOSITIES = ("off", *get_args(Verbosity))

# When the end of a section waits for the device: never, an outermost one, or each; none: no device time is taken.
SYNCS = ("deferred", "group", "immediate", "none")

# Values of enumeration attributes.
WORDS = {OPERATION_TYPE: get_args(OperationType), FLOP_PRECISION: get_args(Precision),
         COPY_DIRECTION: get_args(CopyDirection), COPY_HOST_MEMORY: get_args(HostMemory)}
