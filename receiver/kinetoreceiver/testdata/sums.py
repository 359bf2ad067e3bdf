# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""What BenchmarkAgainstPandas compares with: the sums that Read writes on spans of devices and steps, by Python's json
and pandas.

Usage: sums.py FILE.json

Prints one JSON object: the sums, in whole nanoseconds, and under "seconds" the processor time of reading and summing,
without starting the interpreter and importing pandas. Only events and fields that are needed enter the frame, and all
after it is vectorised over events: a frame of everything (pandas.DataFrame(events)) takes longer.
"""
import json
import sys
import time

import numpy as np
import pandas as pd

KIND = {
    "kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "copy", "Memcpy": "copy", "gpu_memset": "memset", "Memset": "memset",
    "cuda_runtime": "call", "cuda_driver": "call", "Runtime": "call",
    "user_annotation": "range", "Operator": "range", "cpu_op": "range",
}
DEVICE = ["kernel", "copy", "memset"]
COLUMNS = ["kind", "name", "ts", "dur", "device", "stream", "correlation", "bytes", "blocks"]
PHASES = [("enumerate(DataLoader)", "data"), ("Optimizer.step", "optimizer")]
WORDS = {"forward": "forward", "backward": "backward", "optimizer": "optimizer", "data": "data"}
NO_ARGS = {}


def frame(path):
    """The events that are summed, with times in ns after the first, and the resolution of the file's times in ns."""
    with open(path, "rb") as f:
        doc = json.load(f)
    rows, memory = [], []
    for e in doc["traceEvents"] if isinstance(doc, dict) else doc:
        if e.get("ph") == "X":
            kind = KIND.get(e.get("cat"))
            if kind is not None:
                args = e.get("args", NO_ARGS)
                rows.append((kind, e["name"], e["ts"], e["dur"], args.get("device", e["pid"]), args.get("stream", e["tid"]),
                             args.get("correlation", 0), args.get("bytes", 0), args.get("blocks per SM", np.nan)))
        elif e.get("name") == "[memory]" and e["args"].get("Device Id", -1) >= 0:
            memory.append((e["ts"], e["args"]["Bytes"], e["args"].get("Total Allocated", np.nan)))
    df = pd.DataFrame.from_records(rows, columns=COLUMNS)
    zero = df.ts.min()
    df["start"] = ((df.ts - zero) * 1000).round().astype("int64")
    df["ns"] = (df.dur * 1000).round().astype("int64")
    df["end"] = df.start + df.ns
    df["correlation"] = pd.to_numeric(df.correlation, errors="coerce").fillna(0).astype("int64")
    memory = pd.DataFrame.from_records(memory, columns=["ts", "bytes", "usage"])
    memory["at"] = ((memory.ts - zero) * 1000).round()
    resolution = 0 if df.ts.dtype.kind == "i" else float(np.spacing(df.ts.max()) * 1000)
    return df, memory, resolution


def union(df):
    """Length of the union of the rows' intervals; rows sorted by start."""
    if df.empty:
        return 0
    before = df.end.cummax().shift(fill_value=df.start.iloc[0])
    return int((df.end - np.maximum(df.start, before)).clip(lower=0).sum())


def clipped(df, start, end):
    df = df[(df.start < end) & (df.end > start)]
    return df.assign(start=df.start.clip(lower=start), end=df.end.clip(upper=end))


def communication(kernels):
    names = kernels.name.astype("category")
    comm = names.cat.categories.str.contains("nccl|rccl|multimem_", case=False)
    return pd.Series(comm[names.cat.codes], index=kernels.index, dtype=bool)


def window(df):
    """One device over the whole trace; rows sorted by start, with the start of their launch (NaN: none)."""
    kernels = df[df.kind == "kernel"]
    comm = communication(kernels)
    total, computing, communicating = union(kernels), union(kernels[~comm]), union(kernels[comm])
    before = df.end.cummax().shift()
    gap = (df.start - before).clip(lower=0).fillna(0)
    late = df.launch > before
    out = {
        "window": int(df.end.max() - df.start.min()), "busy": union(df), "kernel_count": len(kernels), "kernel": int(kernels.ns.sum()),
        "compute": computing, "comm": communicating, "overlap": communicating + computing - total,
        "memory": union(df[df.kind != "kernel"]),
        "idle_host": int(gap[late].sum()), "idle_launch": int(gap[~late & df.launch.notna()].sum()), "idle_unknown": int(gap[df.launch.isna()].sum()),
    }
    queued = df[df.launch.notna()]
    queue = pd.concat([queued.launch, queued.start]).to_frame("at").assign(change=[1] * len(queued) + [-1] * len(queued), stream=pd.concat([queued.stream] * 2))
    queue = queue.sort_values(["at", "change"], ascending=[True, True], kind="stable")
    depth = queue.groupby("stream", sort=False).change.cumsum()
    out["queue"] = int(depth.max()) if len(depth) else 0
    out["names"] = {n: int(v) for n, v in kernels.groupby("name", sort=False).ns.sum().items()}
    pageable = df[(df.kind == "copy") & df.name.str.contains("Pageable", regex=False)]
    out["pageable"] = [len(pageable), int(pageable.bytes.sum()), int(pageable.ns.sum())]
    brief = kernels[kernels.ns < 10_000]
    out["short"] = [len(brief), int(brief.ns.sum())]
    narrow = kernels[(kernels.blocks > 0) & (kernels.blocks < 1) & ~comm]
    out["narrow"] = [len(narrow), int(narrow.ns.sum())]
    return out


def phases(df):
    """Ranges that stand for a phase of a step, with the phase; rows sorted by start."""
    ranges = df[df.kind == "range"]
    names = ranges.name.astype("category")
    phase = [next((p for prefix, p in PHASES if n.startswith(prefix)), WORDS.get(n.strip("# ").lower())) for n in names.cat.categories]
    ranges = ranges.assign(phase=np.array(phase + [None], dtype=object)[names.cat.codes])
    return ranges[ranges.phase.notna()]


def step(s, work, kernels, phase, memory):
    inside = clipped(work, s.start, s.end)
    kernel = inside[inside.kind == "kernel"]
    comm = communication(kernel)
    mine = kernels[kernels.owner == s.start]
    out = {
        "name": s.name, "duration": int(s.ns), "busy": union(inside), "kernels": len(mine),
        "exposed": union(kernel) - union(kernel[~comm]) if comm.any() else 0,
        "phases": {p: union(g) for p, g in clipped(phase, s.start, s.end).groupby("phase")},
    }
    if comm.any():
        out["phases"]["comm"] = union(kernel[comm])
    m = memory[(memory["at"] >= s.start) & (memory["at"] < s.end)]
    if len(m):
        out["allocated"] = int(m.bytes.sum())
        if m.usage.notna().any():
            out["allocated_max"] = int(max(m.usage.max(), m.usage.iloc[0] - m.bytes.iloc[0]))
    return out


def sums(path):
    df, memory, resolution = frame(path)
    df = df.sort_values(["start", "ns"], ascending=[True, False], kind="stable")
    calls = df[(df.kind == "call") & (df.correlation != 0)].drop_duplicates("correlation", keep="last").set_index("correlation")
    work = df[df.kind.isin(DEVICE)]
    work = work.assign(launch=work.correlation.map(calls.start))
    out = {"resolution": resolution, "devices": {str(int(d)): window(g) for d, g in work.groupby("device")}}
    waits = df[(df.kind == "call") & df.name.str.contains("Synchronize", regex=False) & ~df.name.str.contains("Attribute", regex=False)]
    out["waits"] = [len(waits), int(waits.ns.sum())]
    copies = work[work.kind == "copy"]
    by = copies.groupby(copies.name.str.extract(r"(\w)to\w", expand=False) + "to" + copies.name.str.extract(r"\wto(\w)", expand=False))
    out["copies"] = {d: {"bytes": int(b), "ns": int(n)} for d, b, n in zip(by.groups, by.bytes.sum(), by.ns.sum())}
    out["streams"] = {str(s): int(v) for s, v in work.groupby("stream").ns.sum().items()}
    steps = df[(df.kind == "range") & df.name.str.startswith("ProfilerStep#")]
    kernels = work[(work.kind == "kernel") & work.launch.notna()].sort_values("launch")
    if len(steps):
        kernels = pd.merge_asof(kernels.astype({"launch": "int64"}), steps[["start", "end"]].rename(columns={"start": "owner", "end": "until"}),
                                left_on="launch", right_on="owner")
        kernels = kernels[kernels.launch < kernels.until]
    phase = phases(df)
    out["steps"] = [step(s, work, kernels, phase, memory) for s in steps.itertuples()]
    return out


begin = time.process_time()
result = sums(sys.argv[1])
result["seconds"] = time.process_time() - begin
json.dump(result, sys.stdout)
