# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0

"""Writes 77_results.pftrace, the run of the tables beside it, as rocprofv3 does with --output-format pftrace.

Needs `pip install perfetto`, whose generated messages are Perfetto's own.
"""

import pathlib

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

BOOTTIME, WRITER = 6, 3
trace = Trace()
numbers = {"event_categories": {}, "event_names": {}, "debug_annotation_names": {}}


def interned(packet, table, text):
    """Returns the number of a text, which the packet that uses it first defines."""
    known = numbers[table]
    if text not in known:
        known[text] = len(known) + 1
        getattr(packet.interned_data, table).add(iid=known[text], name=text)
    return known[text]


def packet(at=None):
    p = trace.packet.add()
    p.trusted_packet_sequence_id = WRITER
    if at is not None:
        p.timestamp, p.timestamp_clock_id = at, BOOTTIME
    return p


def track(uuid, name, pid=None):
    p = packet()
    p.track_descriptor.uuid, p.track_descriptor.name = uuid, name
    if pid is not None:
        p.track_descriptor.process.pid = pid


def record(category, name, uuid, begin, end, **values):
    p = packet(begin)
    e = p.track_event
    e.type, e.track_uuid = TrackEvent.TYPE_SLICE_BEGIN, uuid
    e.category_iids.append(interned(p, "event_categories", category))
    e.name_iid = interned(p, "event_names", name)
    e.flow_ids.append(values["corr_id"])
    for key, value in {"begin_ns": begin, "end_ns": end, "delta_ns": end - begin, **values}.items():
        a = e.debug_annotations.add(name_iid=interned(p, "debug_annotation_names", key))
        if isinstance(value, str):
            a.string_value = value
        else:
            a.uint_value = value
    p = packet(end)
    p.track_event.type, p.track_event.track_uuid = TrackEvent.TYPE_SLICE_END, uuid


first = packet()
first.sequence_flags, first.incremental_state_cleared = 1, True
track(1, "run", pid=77)
track(2, "THREAD 1 (78)")
track(3, 'STREAM [" 0 "]')
record("marker_api", "forward", 2, 1900, 3000, tid=78, kind=3, operation=1, corr_id=5, ancestor_id=0)
record("hsa_api", "hsa_queue_create", 2, 1950, 1960, tid=78, kind=4, operation=1, corr_id=4, ancestor_id=0)
record("hip_api", "hipLaunchKernel", 2, 2000, 2100, tid=78, kind=1, operation=1, corr_id=6, ancestor_id=0, stream_ID=0)
record("hip_api", "hipMemcpyAsync", 2, 2200, 2300, tid=78, kind=1, operation=2, corr_id=7, ancestor_id=0, stream_ID=0)
record("memory_copy", "MEMORY_COPY_HOST_TO_DEVICE", 3, 5000, 6000, kind=2, operation=2, src_agent="CPU-0",
       dst_agent="GPU-1", copy_bytes=4096, corr_id=7, tid=78, stream_ID=0)
record("kernel_dispatch", "gemm(float*)", 3, 2500, 4500, kind=5, agent="GPU-1", agent_type="GPU", corr_id=6, queue=3,
       tid=78, kernel_id=9, Scratch_Size=0, LDS_Block_Size=0, VGPR_Count=32, Accum_VGPR_Count=0, SGPR_Count=64,
       workgroup_size=256, grid_size=2000, stream_ID=0)
counter = packet(2500)
counter.track_event.type, counter.track_event.track_uuid = TrackEvent.TYPE_COUNTER, 9
counter.track_event.counter_value = 1
pathlib.Path(__file__).with_name("77_results.pftrace").write_bytes(trace.SerializeToString())
