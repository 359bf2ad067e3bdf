# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes runs.csv, random runs of nested operations, and expected.csv, their statistics by pandas.

python3 runs.py   (needs pandas; times in nanoseconds)"""
import numpy as np
import pandas as pd

PATHS = {
    "prefill": "inference",
    "prefill > attention": "attention",
    "prefill > attention > softmax": "attention",
    "prefill > mlp": "gemm",
    "decode": "inference",
    "decode > attention": "attention",
    "h2d": "copy",
}
PEAK = {"memory": 3.35e12, "pcie": 63e9, "bf16": 989e12, "fp32": 67e12}


def runs():
    r = np.random.default_rng(7)
    rows = []
    clock = 0
    for i in range(120):
        for path in PATHS:
            if r.random() < 0.3 and i > 0:
                continue
            depth = path.count(" > ")
            start = clock + int(r.integers(0, 400_000)) + depth * 10_000
            d = int(r.lognormal(11.5 - depth, 0.8)) + 1
            if i == 0:
                d *= 20
            copy = path == "h2d"
            timed = i == 0 or r.random() < 0.8
            row = dict(path=path, category=PATHS[path], timed=int(timed), start=start, duration=d if timed else 0)
            row["memory_read"] = 0 if copy else int(r.integers(0, 1 << 27))
            row["memory_written"] = 0 if copy else int(r.integers(0, 1 << 25))
            row["memory_unsplit"] = 0 if copy else int(r.integers(0, 1 << 20))
            row["pcie_written"] = int(r.integers(1, 1 << 22)) if copy else 0
            row["items"] = int(r.integers(0, 500))
            row["flops"] = 0.0 if copy else float(r.integers(0, 1 << 35))
            row["precision"] = "" if copy else ("fp32" if "softmax" in path else "bf16")
            rows.append(row)
        clock += int(r.integers(100_000, 900_000))
    return pd.DataFrame(rows)


def covered(f):
    """Length of the union of intervals."""
    f = f.sort_values("start")
    start, end = f["start"].to_numpy(), (f["start"] + f["duration"]).to_numpy()
    reach = np.maximum.accumulate(end)
    from_ = np.maximum(start, np.concatenate([[start[0]], reach[:-1]]))
    return int(np.maximum(end - from_, 0).sum())


def rates(f):
    t = f[f["timed"] == 1]
    s = t["duration"].sum() / 1e9
    memory = t[["memory_read", "memory_written", "memory_unsplit"]].sum()
    return dict(
        memory_read_rate=memory["memory_read"] / s, memory_write_rate=memory["memory_written"] / s, memory_rate=memory.sum() / s,
        pcie_rate=t["pcie_written"].sum() / s, flop_rate=t["flops"].sum() / s, item_rate=t["items"].sum() / s,
    )


def statistics(f):
    d = f.loc[f["timed"] == 1, "duration"]
    quantile = lambda q: np.quantile(d, q, method="inverted_cdf")  # nearest rank
    out = dict(
        count=len(f), timed=len(d), total=d.sum(), min=d.min(), max=d.max(), mean=d.mean(), stddev=d.std(ddof=0),
        p50=quantile(0.5), p99=quantile(0.99), items=f["items"].sum(), flops=f["flops"].sum(),
        memory=f[["memory_read", "memory_written", "memory_unsplit"]].to_numpy().sum(), pcie=f["pcie_written"].sum(),
    )
    out.update(rates(f))
    return out


def main():
    f = runs()
    f.to_csv("runs.csv", index=False)
    timed = f[f["timed"] == 1]
    outer = timed[~timed["path"].str.contains(" > ")]
    total = outer["duration"].sum()
    totals = timed.groupby("path")["duration"].sum()
    rows = []
    for path, g in f.groupby("path", sort=False):
        parent = path.rpartition(" > ")[0]
        row = dict(kind="operation", name=path, **statistics(g))
        row["share_of_total"] = totals[path] / total
        row["share_of_parent"] = totals[path] / (totals[parent] if parent else total)
        shares = dict(memory=row["memory_rate"] / PEAK["memory"], pcie=row["pcie_rate"] / PEAK["pcie"])
        if path != "h2d":
            precision = g["precision"].iloc[0]
            shares[precision] = row["flop_rate"] / PEAK[precision]
        row["peak_of"] = max(shares, key=shares.get)
        row["peak_share"] = shares[row["peak_of"]]
        rows.append(row)
        name = path.split(" > ")[-1]
        everywhere = f[f["path"].str.split(" > ").str[-1] == name]
        first = g[g.index == everywhere.index[0]]
        rest = g[g.index != everywhere.index[0]]
        for kind, part in (("first", first), ("rest", rest)):
            if len(part):
                rows.append(dict(kind=kind, name=path, **statistics(part)))
    for category in f["category"].unique():
        # softmax is within another operation of its category
        g = f[(f["category"] == category) & (f["path"] != "prefill > attention > softmax")]
        rows.append(dict(kind="category", name=category, **statistics(g)))
    rows.append(dict(kind="summary", name="", total=total, timed=covered(timed)))
    pd.DataFrame(rows).to_csv("expected.csv", index=False)


if __name__ == "__main__":
    main()
