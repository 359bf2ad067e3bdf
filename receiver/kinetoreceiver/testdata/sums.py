# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""The baseline of BenchmarkAgainstPandas: computes the results of Read at a level of detail with Python's json and
pandas.

Usage: sums.py FILE.json [steps|auto|kernels]

steps    the sums on spans of devices and steps; device time by the innermost operator around the launch; FLOPs of
         matrix products; idle time of devices by what the host did: the launching thread's innermost range (frames of
         Python and calls included) up to the end of the launch that came late, and launched work that did not begin
auto     and when annotations and modules (where there are none: operators of depth 0 and 1) were on the device: the
         first start, the last end and the busy time of what was launched within; single kernels of 100 us and 0.5 % of
         their step, collectives and copies of 1 MB; of the rest the number and time below the range around the launch
kernels  and a table of all activities with sizes, occupancy, graph, delays, launch, operator and step, and one of all
         host ranges with the device time below them, the sum of which is by operator, too

Prints one JSON object: the sums, in whole nanoseconds, and under "seconds" the processor time of reading and summing,
without starting the interpreter and importing pandas. Only events and fields that are needed enter the frame, and the
rest is vectorized over events, except for the nesting of host ranges, which needs a stack: a frame of everything
(pandas.DataFrame(events)) takes longer. The tables of auto and kernels stay in memory, where Read makes spans of
them. Only Read examines further threads, classifies host activity into causes and findings, and computes bytes and
FLOPs of operators other than matrix products.
"""
import collections
import itertools
import json
import math
import sys
import time

import numpy as np
import pandas as pd

KIND = {
    "kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "copy", "Memcpy": "copy", "gpu_memset": "memset", "Memset": "memset",
    "cuda_runtime": "call", "cuda_driver": "call", "Runtime": "call",
    "user_annotation": "annotation", "Operator": "operator", "cpu_op": "operator",
    "python_function": "frame",
}
STEP = "ProfilerStep#"
DEVICE = ["kernel", "copy", "memset"]
RANGES = ["annotation", "operator"]
COLUMNS = ["kind", "name", "ts", "dur", "device", "stream", "correlation", "bytes", "blocks", "flops"]
ARGUMENTS = ["est. achieved occupancy %", "graph id", "graph node id"]
AUTOMATIC = (STEP, "nccl:", "xccl:", "hccl:", "gloo:", "mpi:", "ucc:", "Optimizer.", "enumerate(DataLoader)", "DistributedDataParallel.")
PHASES = [("enumerate(DataLoader)", "data"), ("Optimizer.step", "optimizer")]
WORDS = {"forward": "forward", "backward": "backward", "optimizer": "optimizer", "data": "data"}
NO_ARGS = {}


def product(a, b, added=None):
    """Returns the FLOPs of a matrix product (vectors are excluded), with an addition for each element of the result."""
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        return np.nan
    batch = math.prod(max(x, y) for x, y in itertools.zip_longest(a[-3::-1], b[-3::-1], fillvalue=1))
    return batch * a[-2] * b[-1] * (2 * a[-1] + (added is not None))


def linear(x, w, bias=None):
    return product([math.prod(x[:-1]), x[-1]], [w[1], w[0]], bias or None) if len(w) == 2 else np.nan


PRODUCTS = {
    "aten::mm": lambda d: product(d[0], d[1]), "aten::bmm": lambda d: product(d[0], d[1]), "aten::matmul": lambda d: product(d[0], d[1]),
    "aten::addmm": lambda d: product(d[1], d[2], d[0]), "aten::baddbmm": lambda d: product(d[1], d[2], d[0]), "aten::linear": lambda d: linear(*d[:3]),
}


def frame(path, detail):
    """Returns the summed events, with times in ns after the first, and the resolution of the file's times in ns."""
    with open(path, "rb") as f:
        doc = json.load(f)
    rows, memory, all_arguments = [], [], detail == "kernels"
    for e in doc["traceEvents"] if isinstance(doc, dict) else doc:
        if e.get("ph") == "X":
            kind = KIND.get(e.get("cat"))
            if kind == "frame":
                kind = "module" if e["name"].startswith("nn.Module: ") else kind
                row = (kind, e["name"], e["ts"], e["dur"], e["pid"], e["tid"], 0, 0, np.nan, np.nan)
                rows.append(row + (None,) * len(ARGUMENTS) if all_arguments else row)
            elif kind is not None:
                args = e.get("args", NO_ARGS)
                count = PRODUCTS.get(e["name"])
                dims = args.get("Input Dims", args.get("Input dims")) if count else None
                row = (kind, e["name"], e["ts"], e["dur"], args.get("device", e["pid"]), args.get("stream", e["tid"]), args.get("correlation", 0),
                       args.get("bytes", 0), args.get("blocks per SM", np.nan), count(dims) if dims else np.nan)
                rows.append(row + tuple(args.get(a) for a in ARGUMENTS) if all_arguments else row)
        elif e.get("name") == "[memory]" and e["args"].get("Device Id", -1) >= 0:
            memory.append((e["ts"], e["args"]["Bytes"], e["args"].get("Total Allocated", np.nan)))
    df = pd.DataFrame.from_records(rows, columns=COLUMNS + (ARGUMENTS if all_arguments else []))
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
    """Returns the length of the union of the rows' intervals; rows are sorted by start."""
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
    """Returns ranges that represent a phase of a step, with the phase; rows are sorted by start."""
    ranges = df[df.kind.isin(RANGES)]
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


def nested(df):
    """The host's ranges with the number of the range around each (inner: a frame of Python, too), of the innermost operator
    and of the outermost matrix product, and how many operators are around it; -1: none. Rows sorted by start, the longer
    first."""
    host = df[~df.kind.isin(DEVICE)].reset_index(drop=True)
    host.loc[host.kind.isin(RANGES) & host.name.str.startswith(STEP), "kind"] = "step"
    up, inner, operator, work, depth = [], [], [], [], []
    stacks = collections.defaultdict(list)
    columns = host.device, host.stream, host.start, host.end, host.kind == "operator", host.flops.notna(), host.kind == "frame"
    for i, (process, thread, start, end, is_operator, known, is_frame) in enumerate(zip(*(c.tolist() for c in columns))):
        stack = stacks[process, thread]
        while stack and stack[-1][0] <= start:
            stack.pop()
        _, within, above, op, known_op, around = stack[-1] if stack else (0, -1, -1, -1, -1, 0)
        op = i if is_operator else op
        known_op = i if known and known_op < 0 else known_op
        up.append(above)
        inner.append(within)
        operator.append(op)
        work.append(known_op)
        depth.append(around)
        if end > start:
            stack.append((end, i, above if is_frame else i, op, known_op, around + is_operator))
    return host.assign(up=adopted(host, np.array(up)), inner=inner, operator=operator, work=work, depth=depth)


def idle(host, df):
    """Returns the gaps of a device that end with a late launch, by the innermost range of the launching thread, and
    the time of other gaps in which launched work did not start. Rows are sorted by start."""
    before = df.end.cummax().shift()
    gaps = df[(df.start > before) & (df.call >= 0)]
    call, since, until = gaps.call.to_numpy(), before[gaps.index].to_numpy().astype("int64"), gaps.start.to_numpy()
    late = host.end.to_numpy()[call].clip(since, until)
    out = {"launched": int((until - late).sum()), "host": int((late - since).sum())}
    threads = host.groupby(["device", "stream"], sort=False).ngroup().to_numpy()
    start, end, within = host.start.to_numpy(), host.end.to_numpy(), host.inner.to_numpy()
    of, time = [], []
    for thread in np.unique(threads[call]):
        ranges = np.flatnonzero((threads == thread) & (end > start))
        n = len(ranges)
        at, now, begins = np.r_[start[ranges], end[ranges]], np.r_[ranges, within[ranges]], np.r_[np.ones(n, bool), np.zeros(n, bool)]
        order = np.lexsort((np.r_[ranges, -ranges], begins, at))  # inner ranges first among those with equal ends
        at, now = np.r_[at[order], np.iinfo("int64").max], now[order]
        mine = (threads[call] == thread) & (late > since)
        first = np.searchsorted(at, since[mine], side="right") - 1
        count = np.searchsorted(at, late[mine], side="left") - first
        piece = np.repeat(first, count) + np.arange(count.sum()) - np.repeat(count.cumsum() - count, count)
        inside = piece >= 0
        a, b = np.repeat(since[mine], count)[inside], np.repeat(late[mine], count)[inside]
        piece = piece[inside]
        of.append(now[piece])
        time.append(np.minimum(at[piece + 1], b) - np.maximum(at[piece], a))
    if of:
        of, time = np.concatenate(of), pd.Series(np.concatenate(time))
        g = time[of >= 0].groupby(host.name.to_numpy()[of[of >= 0]], sort=False)
        out["doing"] = {n: int(t) for n, t in g.sum().sort_values(ascending=False).items()}
    return out


def adopted(host, up):
    """Ranges of other threads are children of the running step. Ranges of the backward pass are children of the
    innermost concurrent annotation of the step's thread, in which that thread waits."""
    steps = host[host.kind == "step"]
    if not len(steps):
        return up
    alone = np.flatnonzero((up < 0) & (host.kind != "step"))
    start, end = host.start.to_numpy(), host.end.to_numpy()
    at = np.searchsorted(steps.start.to_numpy(), start[alone], side="right") - 1
    inside = (at >= 0) & (start[alone] < steps.end.to_numpy()[at])
    alone, at = alone[inside], at[inside]
    adopted = up.copy()
    adopted[alone] = steps.index.to_numpy()[at]
    backward = host.name.str.startswith("autograd::engine").to_numpy()[alone]
    thread = steps.device.iloc[0], steps.stream.iloc[0]
    waiting = host.index[(host.kind == "annotation") & (host.device == thread[0]) & (host.stream == thread[1])].to_numpy()
    if len(waiting):
        kinds = host.kind.tolist()
        for i, n in zip(alone[backward].tolist(), (np.searchsorted(start[waiting], start[alone[backward]], side="right") - 1).tolist()):
            n = waiting[n] if n >= 0 else -1
            while n >= 0 and (kinds[n] != "annotation" or end[n] < end[i]):
                n = up[n]
            if n >= 0:
                adopted[i] = n
    return adopted


def by_operator(host, work):
    """Returns number and time of activities by the innermost operator around the launch; work has the number of the
    call."""
    launched = work[work.call >= 0]
    op = host.operator.to_numpy()[launched.call]
    names = host.name.to_numpy()[op[op >= 0]]
    g = launched.ns[op >= 0].groupby(names, sort=False)
    return {n: [int(c), int(t)] for n, c, t in zip(g.groups, g.count(), g.sum())}


def computed(host, work):
    """Returns the FLOPs of matrix products that launched kernels, each counted once, by name."""
    launched = work[(work.call >= 0) & (work.kind == "kernel")]
    op = np.unique(host.work.to_numpy()[launched.call])
    products = host.loc[op[op >= 0]]
    return {n: float(f) for n, f in products.flops.groupby(products.name).sum().items()}


def below(host, work, wanted):
    """Returns the work launched within each selected range, by device: the range's number, first start, last end and
    busy time."""
    nearest = np.arange(len(host))
    up = host.up.to_numpy()
    keep = wanted.to_numpy()
    while (bad := (nearest >= 0) & ~keep[nearest]).any():
        nearest = np.where(bad, up[nearest], nearest)
    next_up = np.where(up >= 0, nearest[up], -1)
    at = np.where(work.call >= 0, nearest[work.call], -1)
    parts = []
    while (at >= 0).any():
        inside = work[at >= 0]
        parts.append(pd.DataFrame({"range": at[at >= 0], "device": inside.device, "start": inside.start, "end": inside.end, "ns": inside.ns}))
        at = np.where(at >= 0, next_up[at], -1)
    if not parts:
        return None
    rows = pd.concat(parts).sort_values(["range", "device", "start"], kind="stable")
    g = rows.groupby(["range", "device"], sort=False)
    before = g.end.cummax().groupby([rows.range, rows.device]).shift()
    rows["busy"] = (rows.end - np.maximum(rows.start, before.fillna(rows.start))).clip(lower=0)
    return g.agg(start=("start", "min"), end=("end", "max"), count=("ns", "size"), ns=("ns", "sum")).join(rows.groupby(["range", "device"]).busy.sum()).reset_index()


def summary(df, work, host, steps):
    """The level auto: projections of ranges, activities that matter, and what the others add up to below the range around
    their launch."""
    named = (host.kind == "module") | (host.kind == "annotation") & ~host.name.str.startswith(AUTOMATIC)
    wanted = (host.kind.isin(["module", "annotation"]) | (not named.any()) & (host.kind == "operator") & (host.depth < 2))
    sections = below(host, work, wanted)
    comm = pd.Series(False, index=work.index)
    comm[work.kind == "kernel"] = communication(work[work.kind == "kernel"])
    least = np.full(len(work), 100_000.0)
    if len(steps):
        at = np.searchsorted(steps.start.to_numpy(), work.launch.fillna(-1).to_numpy(), side="right") - 1
        inside = (at >= 0) & (work.launch.to_numpy() < steps.end.to_numpy()[at])
        least = np.where(inside, np.maximum(least, steps.ns.to_numpy()[at] / 200), least)
    matters = comm | (work.kind == "kernel") & (work.ns >= least) | (work.kind == "copy") & (work.bytes >= 1_000_000)
    rest = work[~matters]
    up = np.where(rest.call >= 0, host.up.to_numpy()[rest.call], -1)
    by_kind = rest.groupby([up, "kind"], sort=False).agg(count=("ns", "size"), ns=("ns", "sum"), bytes=("bytes", "sum"))
    names = rest[rest.kind == "kernel"].groupby([up[rest.kind == "kernel"], "name"], sort=False).ns.sum()
    top = names.sort_values(ascending=False).groupby(level=0).head(5)
    out = {"single": int(matters.sum()), "below": int(by_kind["count"].sum()), "top": len(top)}
    if sections is not None:
        sections["name"] = host.name.to_numpy()[sections.range]
        out["sections"] = [len(sections), int((sections.end - sections.start).sum()), int(sections.busy.sum())]
    return out


def everything(work, host, steps):
    """The level kernels: a row for each activity and for each host range."""
    call = np.maximum(work.call, 0)
    start, end, operator = host.start.to_numpy(), host.end.to_numpy(), host.operator.to_numpy()
    launched = work.call >= 0
    table = work.assign(
        start_delay=np.where(launched, work.start - start[call], np.nan), launch_delay=np.where(launched, (work.start - end[call]).clip(lower=0), np.nan),
        operator=np.where(launched, operator[call], -1), above=np.where(launched, work.call, -1),
    )
    if len(steps):
        at = np.searchsorted(steps.start.to_numpy(), table.launch.fillna(-1).to_numpy(), side="right") - 1
        table["step"] = np.where((at >= 0) & (table.launch.to_numpy() < steps.end.to_numpy()[at]), steps.name.to_numpy()[at], None)
    waits = host.name.str.contains("Synchronize|urQueueFinish|urEventWait") & ~host.name.str.contains("Attribute", regex=False)
    launches = host.name.str.contains("Launch|Memcpy|Memset|memcpy|memset|urEnqueue")
    ranges = host[~host.kind.isin(["call", "frame"]) | waits | launches]
    totals = below(host, work, ~host.kind.isin(["call", "frame"]))
    inclusive = {}
    if totals is not None:
        ranges = ranges.join(totals.groupby("range")[["count", "ns", "busy"]].sum().add_suffix("_device"))
        ops = ranges[(ranges.kind == "operator") & ranges.ns_device.notna()]
        g = ops.groupby("name", sort=False)
        inclusive = {n: [int(c), int(t)] for n, c, t in zip(g.groups, g.count_device.sum(), g.ns_device.sum())}
    return {"activities": len(table), "inclusive": inclusive}


def sums(path, detail):
    df, memory, resolution = frame(path, detail)
    df = df.sort_values(["start", "ns"], ascending=[True, False], kind="stable")
    host = nested(df)
    calls = host[(host.kind == "call") & (host.correlation != 0)].drop_duplicates("correlation", keep="last")
    work = df[df.kind.isin(DEVICE)]
    call = work.correlation.map(pd.Series(calls.index, index=calls.correlation))
    work = work.assign(launch=work.correlation.map(calls.set_index("correlation").start), call=call.fillna(-1).astype("int64"))
    out = {"resolution": resolution, "operators": by_operator(host, work), "flops": computed(host, work), "devices": {str(int(d)): window(g) | {"idle": idle(host, g)} for d, g in work.groupby("device")}}
    waits = df[(df.kind == "call") & df.name.str.contains("Synchronize", regex=False) & ~df.name.str.contains("Attribute", regex=False)]
    out["waits"] = [len(waits), int(waits.ns.sum())]
    copies = work[work.kind == "copy"]
    by = copies.groupby(copies.name.str.extract(r"(\w)to\w", expand=False) + "to" + copies.name.str.extract(r"\wto(\w)", expand=False))
    out["copies"] = {d: {"bytes": int(b), "ns": int(n)} for d, b, n in zip(by.groups, by.bytes.sum(), by.ns.sum())}
    out["streams"] = {str(s): int(v) for s, v in work.groupby("stream").ns.sum().items()}
    steps = df[df.kind.isin(RANGES) & df.name.str.startswith(STEP)]
    kernels = work[(work.kind == "kernel") & work.launch.notna()].sort_values("launch")
    if len(steps):
        kernels = pd.merge_asof(kernels.astype({"launch": "int64"}), steps[["start", "end"]].rename(columns={"start": "owner", "end": "until"}),
                                left_on="launch", right_on="owner")
        kernels = kernels[kernels.launch < kernels.until]
    phase = phases(df)
    out["steps"] = [step(s, work, kernels, phase, memory) for s in steps.itertuples()]
    if detail == "auto":
        out["auto"] = summary(df, work, host, steps)
    elif detail == "kernels":
        out["kernels"] = everything(work, host, steps)
    return out


begin = time.process_time()
result = sums(sys.argv[1], (sys.argv[2:] + ["steps"])[0])
result["seconds"] = time.process_time() - begin
json.dump(result, sys.stdout)
