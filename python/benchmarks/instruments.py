# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""What NVML's instruments really do: `make hardware` runs this and prints rows for docs/hardware.md.

    python instruments.py [--seconds 60] [--nvml libnvidia-ml.so.1] [--device 0] [--out readings.json]

One process puts steps of known length on the device: idle, a large matrix product, idle, each for 0.2 to 5 s. This
process reads every instrument each 2 ms and computes, for each of them,

- the lengths of its plateaus, which show how often the driver refreshes it,
- the delay from an edge of the load until the reading has made half of its change,
- and how far the energy counter and the integral of power agree.

Without torch or a GPU it prints the reason and exits with status 0.
"""

import argparse
import bisect
import ctypes
import json
import multiprocessing
import random
import statistics
import sys
import time

SUCCESS = 0
FIELD_POWER_AVERAGE, FIELD_POWER_INSTANT = 185, 186  # NVML_FI_DEV_POWER_*


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t"""

    _fields_ = [("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong), ("latency", ctypes.c_longlong),
                ("type", ctypes.c_uint), ("result", ctypes.c_int), ("value", ctypes.c_ulonglong)]


class Utilization(ctypes.Structure):
    """nvmlUtilization_t"""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class ProcessSample(ctypes.Structure):
    """nvmlProcessUtilizationSample_t"""

    _fields_ = [("pid", ctypes.c_uint), ("timestamp", ctypes.c_ulonglong), ("sm", ctypes.c_uint), ("memory", ctypes.c_uint),
                ("encoder", ctypes.c_uint), ("decoder", ctypes.c_uint)]


class Nvml:
    """The calls of NVML that are measured. Each instrument returns a number, or None if the driver has no value."""

    def __init__(self, path="libnvidia-ml.so.1", index=0):
        self.lib = ctypes.CDLL(path)
        if result := self.lib.nvmlInit_v2():
            raise OSError("nvmlInit returned %d" % result)
        self.device = ctypes.c_void_p()
        if result := self.lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self.device)):
            raise OSError("device %d: NVML returned %d" % (index, result))
        self.seen = 0
        self.instruments = {
            "energy counter": lambda: self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong, 1e-3),
            "power": lambda: self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint, 1e-3),
            "power, average": lambda: self._field(FIELD_POWER_AVERAGE),
            "power, instantaneous": lambda: self._field(FIELD_POWER_INSTANT),
            "utilization": self._utilization,
            "process utilization": self._process,
            "SM clock": lambda: self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, 1, 1),
            "throttle reasons": lambda: self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong, 1),
        }

    def _number(self, call, kind, scale, *arguments):
        value = kind()
        function = getattr(self.lib, call, None)
        if function is None or function(self.device, *arguments, ctypes.byref(value)) != SUCCESS:
            return None
        return value.value * scale

    def _field(self, field):
        value = FieldValue(field=field)
        if self.lib.nvmlDeviceGetFieldValues(self.device, 1, ctypes.byref(value)) != SUCCESS or value.result != SUCCESS:
            return None
        return (value.value & 0xFFFFFFFF) * 1e-3

    def _utilization(self):
        value = Utilization()
        if self.lib.nvmlDeviceGetUtilizationRates(self.device, ctypes.byref(value)) != SUCCESS:
            return None
        return value.gpu

    def processes(self):
        """Returns the utilization in percent of each process with a newer sample. NVML keeps samples, each with its own time."""
        count = ctypes.c_uint(256)
        samples = (ProcessSample * 256)()
        function = getattr(self.lib, "nvmlDeviceGetProcessUtilization", None)
        if function is None or function(self.device, samples, ctypes.byref(count), ctypes.c_ulonglong(self.seen)) != SUCCESS:
            return {}
        newest = {s.pid: s for s in sorted(samples[:count.value], key=lambda s: s.timestamp) if s.timestamp}
        self.seen = max((s.timestamp for s in newest.values()), default=self.seen)
        return {pid: s.sm for pid, s in newest.items()}

    def _process(self):
        shares = self.processes()
        return sum(shares.values()) if shares else None


def read(nvml, seconds, interval=0.002, clock=time.monotonic, sleep=time.sleep):
    """Returns [(time, value), ...] by instrument. The time is the middle of the call."""
    readings = {name: [] for name in nvml.instruments}
    end = clock() + seconds
    while (begin := clock()) < end:
        for name, instrument in nvml.instruments.items():
            before = clock()
            if (value := instrument()) is not None:
                readings[name].append(((before + clock()) / 2, value))
        sleep(max(0.0, begin + interval - clock()))
    return readings


def changes(readings):
    """Returns the readings at which the value changed."""
    return [now for last, now in zip(readings, readings[1:]) if now[1] != last[1]]


def plateaus(readings):
    """Returns the seconds between changes of the value."""
    at = [t for t, _ in changes(readings)]
    return [b - a for a, b in zip(at, at[1:])]


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def levels(readings, begin, end):
    """Returns the median of the last quarter of a period, when the instrument has settled."""
    inside = [v for t, v in readings if end - (end - begin) / 4 <= t < end]
    return statistics.median(inside) if inside else None


def delays(readings, edges):
    """Returns, for each edge of the load, the seconds until the reading had made half of its change.

    edges are the times at which the load began or ended, in order. Edges without a visible change, and those whose
    reading does not arrive before the next edge, have no delay."""
    found = []
    times = [t for t, _ in readings]
    for before, edge, after in zip(edges, edges[1:], edges[2:]):
        low, high = levels(readings, before, edge), levels(readings, edge, after)
        if low is None or high is None or abs(high - low) < 0.2 * max(abs(low), abs(high), 1e-9):
            continue
        half = (low + high) / 2
        for t, v in readings[bisect.bisect(times, edge):bisect.bisect(times, after)]:
            if (v > half) == (high > low):
                found.append(t - edge)
                break
    return found


def rates(counter):
    """Returns the slopes of a counter between its changes, as readings of power at the later change."""
    at = changes(counter)
    return [(b[0], (b[1] - a[1]) / (b[0] - a[0])) for a, b in zip(at, at[1:]) if b[0] > a[0]]


def integral(power, begin, end):
    """Returns the joules between two times, by trapezoids."""
    inside = [(t, v) for t, v in power if begin <= t <= end]
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in zip(inside, inside[1:]))


def agreement(counter, power):
    """Returns the counter's increase over the integral of power, between the first and the last change of the counter."""
    at = changes(counter)
    if len(at) < 2 or not (joules := integral(power, at[0][0], at[-1][0])):
        return None
    return (at[-1][1] - at[0][1]) / joules


def energies(path):
    """Returns the last joules of each process, with their error, from the metrics that the Collector wrote."""
    found = {}
    try:
        with open(path) as f:
            lines = f.readlines()
    except OSError:
        return found
    for line in lines:
        for resource in json.loads(line)["resourceMetrics"]:
            for scope in resource["scopeMetrics"]:
                for metric in scope["metrics"]:
                    for point in metric.get("sum", {}).get("dataPoints", ()):
                        attributes = {a["key"]: a["value"] for a in point.get("attributes", []) + resource["resource"].get("attributes", [])}
                        if pid := attributes.get("process.pid"):
                            found.setdefault(int(pid["intValue"]), {})[metric["name"]] = point.get("asDouble", 0)
    return found


def summary(readings, edges):
    """Returns the rows of docs/hardware.md as (what, result)."""
    rows = []
    for name, list_ in readings.items():
        if not list_:
            rows.append((name, "not available"))
            continue
        lengths = plateaus(list_)
        steps = delays(rates(list_) if name == "energy counter" else list_, edges)
        text = "%d readings" % len(list_)
        if lengths:
            text += "; refreshed after %.1f, %.1f, %.1f ms (p5, p50, p95)" % tuple(1e3 * quantile(lengths, q) for q in (.05, .5, .95))
        if steps:
            text += "; %.0f, %.0f, %.0f ms behind an edge of the load (p5, p50, p95 of %d)" % (
                *(1e3 * quantile(steps, q) for q in (.05, .5, .95)), len(steps))
        rows.append((name, text))
    for name in ("power", "power, average", "power, instantaneous"):
        if (ratio := agreement(readings.get("energy counter", []), readings.get(name, []))) is not None:
            rows.append(("energy counter / integral of " + name, "%.4f" % ratio))
    return rows


def load(seconds, ready, edges):
    """Alternates between idle and matrix products, and sends the times of the edges."""
    import torch

    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    b = a @ a
    torch.cuda.synchronize()
    ready.set()
    generator = random.Random(1)
    times = [time.monotonic()]
    end = times[0] + seconds
    while times[-1] < end:
        length = generator.choice((0.2, 0.5, 1.0, 2.0, 5.0))
        if len(times) % 2:
            time.sleep(length)
        else:
            until = time.monotonic() + length
            while time.monotonic() < until:
                for _ in range(4):  # about 6 ms, so that the device ends within 6 ms of the host's clock
                    torch.matmul(a, a, out=b)
                torch.cuda.synchronize()
        times.append(time.monotonic())
    edges.put(times)


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--nvml", default="libnvidia-ml.so.1")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--out", help="file for all readings, as JSON")
    o = parser.parse_args(arguments)
    try:
        nvml = Nvml(o.nvml, o.device)
        import torch
    except (OSError, ImportError) as e:
        print("skipped: %s" % e)
        return
    if not torch.cuda.is_available():
        print("skipped: torch sees no GPU")
        return
    context = multiprocessing.get_context("spawn")
    ready, edges = context.Event(), context.Queue()
    process = context.Process(target=load, args=(o.seconds, ready, edges))
    process.start()
    if not ready.wait(120):
        process.terminate()
        sys.exit("the load did not start")
    readings = read(nvml, o.seconds)
    times = edges.get(timeout=30)
    process.join()
    for what, result in summary(readings, times):
        print("| %s | %s |" % (what, result), flush=True)
    if o.out:
        with open(o.out, "w") as f:
            json.dump({"edges": times, "readings": readings}, f)


if __name__ == "__main__":
    main()
