// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// What the reader chose, and what arrives.

const live = {range: 60, paused: false, pick: null, cursor: null, dragging: false, chosen: "", service: "", trace: "", reload: () => {}};

// choose selects a time for all views.
function choose(from, to) {
  live.pick = to > from ? {from, to} : null;
  changed();
  chosenInWords();
  live.reload();
}
function unchoose() {
  live.pick = live.cursor = null;
  changed();
  chosenInWords();
  live.reload();
}
function chosenInWords() {
  const p = live.pick, box = byId("chosen");
  box.hidden = !p;
  if (p) box.replaceChildren(el("span", {}, `Selected ${clock(p.from)} to ${clock(p.to)} (${seconds((p.to - p.from) / 1000)}). Operation totals are rounded to 5 s.`), el("button", {"data-key": "reset", onclick: unchoose}, "reset"));
}

// within5 reports whether a bin of 5 s is in a time, as the Collector rounds it.
const within5 = (at, from, to) => at >= Math.floor(from / 5000) * 5 && at <= Math.floor(to / 5000) * 5;

// selected returns the part of a saved state in a time. A live page gets it from the Collector.
function selected(s, pick) {
  if (!pick) return s;
  const {from, to} = pick, steps = s.steps.filter((x) => x.t >= from && stepStart(x) <= to);
  const operations = s.operations.map((o) => {
    const past = (o.past || []).filter((b) => within5(b.at, from, to)), sum = (k) => past.reduce((t, b) => t + (b[k] || 0), 0);
    return {...o, count: sum("count"), time: sum("time"), total: sum("total"), energy: sum("energy")};
  }).filter((o) => o.count > 0);
  // Unless points are all requests, the median is unknown.
  const points = (s.points || []).filter((p) => p.end >= from && p.end - p.duration * 1000 <= to), all = (s.points || []).length >= (s.bins || []).reduce((t, b) => t + (b.requests || 0), 0);
  return {...s, whole: s, from, to, operations, steps, stepCount: steps.reduce((t, x) => t + (x.count || 1), 0), longest: (s.longest || []).filter((x) => x.t >= from && stepStart(x) <= to),
    requests: s.requests.filter((q) => q.end >= from && q.start <= to), points, requestMedian: all ? median(points.map((p) => p.duration)) : 0, bins: (s.bins || []).filter((b) => within5(b.at, from, to))};
}

// patched returns a state with an update: a list has new rows, and pairs of the first of so many rows of the list before.
function patched(old, s) {
  if (!s.base) return s;
  if (!old || old.update !== s.base) return null;
  const rows = (before, list) => (list || []).flatMap((x) => (Array.isArray(x) ? (before || []).slice(x[0], x[0] + x[1]) : [x]));
  for (const k of ["operations", "steps", "requests", "longest", "points", "bins"]) s[k] = rows(old[k], s[k]);
  const at = new Map(old.devices.map((d) => [d.id, d]));
  s.devices = s.devices.map((d) => {
    if (!d.changes) return d;
    const before = at.get(d.id);
    ["covered", "busy", "power", "temperature", "throttled", "memory"].forEach((k, i) => { d[k] = rows(before[k], d.changes[i]); });
    d.recent = rows(before.recent, d.newest);
    return d;
  });
  return s;
}

// Does everything arrive?
function health() {
  const h = state.health, ago = (t) => (t ? (state.live ? seconds(Math.max(0, (state.now - t) / 1000)) + " ago" : clock(t)) : "none yet");
  const rows = [["spans", `${count(h.spans)}, of which ${count(h.gpuSpans)} of GPU work`], ["steps", count(h.steps)], ["requests with a usage record", count(h.requests)], ["newest span", ago(h.lastSpan)],
    ["newest metric of a device", ago(h.lastMetric)], ["GPU spans covered by device samples", h.coverage ? percent(h.coverage) : "not yet (needs gpu_join and the gpu receiver)"]];
  if (h.operationsSince) rows.push(["operations reach back to", clock(h.operationsSince * 1000)]);
  for (const [k, n] of [["operationsDropped", "operations beyond the limit"], ["devicesDropped", "spans and points of devices beyond 64"], ["requestsDropped", "requests beyond the limit"], ["stacksMerged", "values of stacks beyond 5,000 in 15 s, counted under (other stacks)"], ["futureDropped", "spans and points from the future (check the clocks)"]]) if (h[k]) rows.push([n, count(h[k])]);
  const list = state.contradictions || [];
  return [el("dl", {}, ...rows.flatMap(([a, b]) => [el("dt", {}, a), el("dd", {}, b)])),
    list.length ? el("p", {}, el("strong", {}, "Device values that contradict each other")) : "",
    list.length ? el("ul", {class: "contradictions"}, ...list.map((c) => el("li", {}, el("strong", {}, `${c.reason} `), `(${c.source}${c.device ? ", " + c.device : ""}, ${plural(c.count, "time")}, last ${ago(c.last)}): ${c.found}, but ${c.other}. `, el("span", {class: "dim"}, `Effect: ${c.effect}. Try: ${c.remedy}.`)))) : ""];
}
