# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""What NVML's instruments really do: `make hardware` runs this and prints rows for docs/hardware.md.

    python instruments.py [--seconds 60] [--nvml libnvidia-ml.so.1] [--device 0] [--out readings.json] [--loads FOLDER]

One process puts steps of known length on the device: idle, a large matrix product, idle, each for 0.2 to 5 s. This
process reads every instrument each 2 ms and computes, for each of them,

- the lengths of its plateaus, which show how often the driver refreshes it,
- the delay from an edge of the load until the reading has made half of its change,
- the time that a reading is the mean of, and by how much it is late, where the load explains the readings,
- and how far the energy counter and the integral of power agree.

What to change afterwards: if the 95th percentile of the counter's new values is above 100 ms, set DefaultRefresh in
internal/instrument/energy.go to it. If instantaneous power is later behind an edge than half of InstantWindow and half
of its refresh period (62 ms), set InstantWindow to what the difference shows. If the counter divided by the integral of
power is outside 0.9 to 1.1, a healthy device has a contradiction: set deviates in internal/plausibility/counter.go above it.

Without torch or a GPU it prints the reason and exits with status 0. --loads rehearses without both: nothing is computed,
and the folder gets a file of when the load began and ended, which a stub of NVML follows (tests/nvml_stub.c).
"""

import argparse
import bisect
import ctypes
import json
import math
import multiprocessing
import os
import random
import statistics
import struct
import sys
import time

SUCCESS, FUNCTION_NOT_FOUND = 0, 13
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

    def __init__(self, path="libnvidia-ml.so.1", index=0, now=time.time):
        self.now = now  # the clock of the samples of processes
        self.lib = ctypes.CDLL(path)
        if result := self._call("nvmlInit_v2"):
            raise OSError("nvmlInit returned %d" % result)
        self.device = ctypes.c_void_p()
        if result := self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self.device)):
            raise OSError("device %d: NVML returned %d" % (index, result))
        self.seen = 0
        self.ages = []  # s, of the samples of processes when they appeared
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

    def _call(self, name, *arguments):
        """Returns the status of a function, 13 if the driver is too old to have it."""
        function = getattr(self.lib, name, None)
        return function(*arguments) if function else FUNCTION_NOT_FOUND

    def _number(self, call, kind, scale, *arguments):
        value = kind()
        if self._call(call, self.device, *arguments, ctypes.byref(value)) != SUCCESS:
            return None
        return value.value * scale

    def _field(self, field):
        value = FieldValue(field=field)
        if self._call("nvmlDeviceGetFieldValues", self.device, 1, ctypes.byref(value)) != SUCCESS or value.result != SUCCESS:
            return None
        return (value.value & 0xFFFFFFFF) * 1e-3

    def _utilization(self):
        value = Utilization()
        if self._call("nvmlDeviceGetUtilizationRates", self.device, ctypes.byref(value)) != SUCCESS:
            return None
        return value.gpu

    def processes(self):
        """Returns the utilization in percent of each process with a newer sample. NVML keeps samples, each with its own time."""
        count = ctypes.c_uint(256)
        samples = (ProcessSample * 256)()
        if self._call("nvmlDeviceGetProcessUtilization", self.device, samples, ctypes.byref(count), ctypes.c_ulonglong(self.seen)):
            return {}
        newest = {s.pid: s for s in sorted(samples[:count.value], key=lambda s: s.timestamp) if s.timestamp}
        self.seen = max((s.timestamp for s in newest.values()), default=self.seen)
        return {pid: s.sm for pid, s in newest.items()}

    def _process(self):
        first, shares = not self.seen, self.processes()
        if shares and not first:  # what the driver kept from before is older
            self.ages.append(self.now() - 1e-6 * self.seen)
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


def busy(edges):
    """Returns the function of the seconds of load up to a time. The first edge begins the idle time before the first load."""
    total, sums = 0.0, []
    for i, t in enumerate(edges):
        total += t - edges[i - 1] if i and not i % 2 else 0.0
        sums.append(total)

    def until(t):
        i = bisect.bisect(edges, t) - 1
        return 0.0 if i < 0 else sums[i] + (t - edges[i] if i % 2 else 0.0)
    return until


WINDOWS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.17, 0.2, 0.25, 0.5, 1.0)  # s, of which a reading can be the mean


def mean_of(readings, edges, windows=WINDOWS):
    """Returns the seconds that readings are the mean of, and by how many they are late: the pair that explains the readings at
    their changes best by the load; and "at most " if shorter means explain them as well. None if it explains less than 90 % of their variance. A change that was read late shows
    neither."""
    until, pairs = busy(edges), list(zip(readings, readings[1:]))
    usual = statistics.median(b[0] - a[0] for a, b in pairs) if pairs else 0
    at = [b for a, b in pairs if a[1] != b[1] and b[0] - a[0] <= 2 * usual and edges[0] + 1.5 < b[0] < edges[-1]]
    at = at[::len(at) // 400 + 1]
    if len(at) < 20:
        return None
    mean = statistics.fmean(v for _, v in at)
    total = sum((v - mean) ** 2 for _, v in at)

    def left(window, late):
        shares = [(until(t - late) - until(t - late - window)) / window for t, _ in at]
        middle = statistics.fmean(shares)
        square = sum((x - middle) ** 2 for x in shares)
        product = sum((x - middle) * (v - mean) for x, (_, v) in zip(shares, at))
        return total - product * product / square if square else total

    fits = []
    for window in windows:
        _, coarse = min((left(window, 0.02 * i), 0.02 * i) for i in range(11))
        fits += ((left(window, late), window, late) for late in (coarse + 0.005 * i for i in range(-4, 5)) if late >= 0)
    least = min(fits)[0]
    if least >= 0.1 * total:
        return None
    # Readings that change far from the edges of the load do not tell short windows apart: the longest of them, and the middle delay.
    equal = [(window, late) for rest, window, late in fits if rest <= least + 1e-6 * total]
    window = max(equal)[0]
    lates = sorted(late for w, late in equal if w == window)
    return window, lates[len(lates) // 2], "" if len({w for w, _ in equal}) == 1 else "at most "


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
                        attributes = point.get("attributes", []) + resource["resource"].get("attributes", [])
                        attributes = {a["key"]: a["value"] for a in attributes}
                        if pid := attributes.get("process.pid"):
                            found.setdefault(int(pid["intValue"]), {})[metric["name"]] = point.get("asDouble", 0)
    return found


def shares(alone, both):
    """Returns the rows of processes that ran alone, by their kind, and together, by when. A run has the joules of the device above
    its idle power (None: no counter), and for each kind of process how much work it did, the joules that the Collector attributes
    to it and their error (None: nothing), and the mean of its SM utilization in percent.

    A process beside another one does less. Its own energy is therefore what the same work took alone."""
    def joules(v):
        return "not available" if v is None else "%.0f J" % v

    rows = []
    for kind, run in alone.items():
        work, energy, error, _ = run["processes"][kind]
        rows.append(("%s alone: the counter above idle; attributed ± error" % kind, "%s; %s ± %s" % tuple(
            map(joules, (run["joules"], energy, error)))))
    for when, run in both.items():
        for kind, (work, energy, error, _) in run["processes"].items():
            share = work / (alone[kind]["processes"][kind][0] or 1)
            own = None if alone[kind]["joules"] is None else alone[kind]["joules"] * share
            text = "%s for %.0f %% of the work; %s ± %s" % (joules(own), 100 * share, joules(energy), joules(error))
            if None not in (own, energy, error):
                text += ", %s" % ("within" if abs(energy - own) <= error else "beyond")
            rows.append(("%s beside the other, %s: its work's joules alone; attributed ± error" % (kind, when), text))
        used = ["not available" if p[3] is None else "%s %.0f %%" % (kind, p[3]) for kind, p in run["processes"].items()]
        rows.append(("both, %s: the counter above idle; attributed; SM utilization by NVML" % when, "%s; %s; %s" % (
            joules(run["joules"]), joules(sum(p[1] or 0 for p in run["processes"].values())), ", ".join(used))))
    return rows


def refreshes(name, readings, edges):
    """Returns the seconds between two refreshes. Each reading of a process is a new sample, also of the same value, and
    there is none while the process is idle."""
    if name != "process utilization":
        return plateaus(readings)
    times = [t for t, _ in readings]
    return [b - a for a, b in zip(times, times[1:]) if bisect.bisect(edges, a) == bisect.bisect(edges, b)]


def quantiles(values):
    return "%.1f, %.1f, %.1f ms" % tuple(1e3 * quantile(values, q) for q in (.05, .5, .95))


def summary(readings, edges, ages=()):
    """Returns the rows of docs/hardware.md as (what, result). Three times are the quantiles 0.05, 0.5 and 0.95."""
    rows = []
    for name, list_ in readings.items():
        if not list_:
            rows.append((name, "not available"))
            continue
        slopes = rates(list_) if name == "energy counter" else list_
        parts = ["%d readings" % len(list_)]
        lengths = refreshes(name, list_, edges)
        if len(lengths) >= len(edges):
            parts.append("refreshed after " + quantiles(lengths))
        else:
            parts.append("changed with the load only" if lengths else "never changed")
        if steps := delays(slopes, edges):
            parts.append("%s behind an edge of the load (of %d)" % (quantiles(steps), len(steps)))
        if name == "process utilization" and ages:
            parts.append("%s old when they appear" % quantiles(ages))
        elif name == "energy counter" and lengths:
            if found := mean_of(slopes, edges, (quantile(lengths, .5),)):
                parts.append("%.0f ms late" % (1e3 * found[1]))
        elif found := mean_of(list_, edges):
            parts.append("a mean of %s%.0f ms, %.0f ms late" % (found[2], 1e3 * found[0], 1e3 * found[1]))
        rows.append((name, "; ".join(parts)))
    for name in ("power", "power, average", "power, instantaneous"):
        if (ratio := agreement(readings.get("energy counter", []), readings.get(name, []))) is not None:
            rows.append(("energy counter / integral of " + name, "%.4f" % ratio))
    if times := [t for t, _ in readings.get("power", ())]:
        rows.append(("time between two readings of everything", quantiles([b - a for a, b in zip(times, times[1:])] or [0.0])))
    return rows


def lengths():
    """Yields the seconds of idle time and of load in turn. They end at any time of a refresh period of 100 ms."""
    generator = random.Random(1)
    while True:
        yield generator.choice((0.2, 0.5, 1.0, 2.0, 5.0)) + generator.uniform(0, 0.1)


def tell(file, times):
    """Writes for a stub of NVML when this process began and ended to work."""
    with open(file + ".new", "wb") as f:
        f.write(struct.pack("%dd" % (len(times) + 2), os.getpid(), len(times), *times))
    os.replace(file + ".new", file)


def load(seconds, ready, edges, file=None):
    """Alternates between idle and matrix products, and sends the times of the edges. With a file, it tells a stub instead."""
    times = []

    def edge():
        times.append(time.monotonic())
        if file:
            tell(file, times)

    def compute(until):
        while time.monotonic() < until:
            for _ in range(4):  # about 6 ms, so that the device ends within 6 ms of the host's clock
                torch.matmul(a, a, out=b)
            torch.cuda.synchronize()

    def wait(until):
        time.sleep(max(0.0, until - time.monotonic()))

    if not file:
        import torch

        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        b = a @ a
        torch.cuda.synchronize()
    ready.set()
    edge()
    end = times[0] + seconds
    for length in lengths():
        if times[-1] >= end:
            break
        (wait if len(times) % 2 or file else compute)(times[-1] + length)
        edge()
    edges.put(times)


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--nvml", default="libnvidia-ml.so.1")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--out", help="file for all readings, as JSON")
    parser.add_argument("--loads", default=os.environ.get("OTELGPU_STUB_LOADS"),
                        help="rehearse with a stub of NVML that reads from this folder when the load runs")
    o = parser.parse_args(arguments)
    try:
        nvml = Nvml(o.nvml, o.device)
        if not o.loads:
            import torch

            if not torch.cuda.is_available():
                print("skipped: torch sees no GPU")
                return
    except (OSError, ImportError) as e:
        print("skipped: %s" % e)
        return
    context = multiprocessing.get_context("spawn")
    ready, edges = context.Event(), context.Queue()
    process = context.Process(target=load, args=(o.seconds, ready, edges, o.loads and os.path.join(o.loads, "load")))
    process.start()
    if not ready.wait(120):
        process.terminate()
        sys.exit("the load did not start")
    readings = read(nvml, o.seconds)
    times = edges.get(timeout=30)
    process.join()
    if o.loads:
        os.remove(os.path.join(o.loads, "load"))  # its last edge would be a load that never ends
    for what, result in summary(readings, times, nvml.ages):
        print("| %s | %s |" % (what, result), flush=True)
    if o.out:
        with open(o.out, "w") as f:
            json.dump({"edges": times, "ages": nvml.ages, "readings": readings}, f)


if __name__ == "__main__":
    main()
