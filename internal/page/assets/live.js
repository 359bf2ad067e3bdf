// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// The views of what is going on now. Each answers the question above it.

const live = {range: 60, paused: false, pick: null, cursor: null, dragging: false, chosen: "", service: "", reload: () => {}};

const phaseKinds = new Map(["forward", "backward", "optimizer", "exposed communication", "data", "comm"].map((n, i) => [n, "k" + [0, 2, 3, 1, 5, 6][i]]));
const phaseKind = (n) => phaseKinds.get(n) || (n === "other" ? "k7" : ownPhase(n));
// kindsOf assigns colors to names in this order; each name always has the same.
function kindsOf(order) {
  const kinds = new Map();
  return (name) => {
    if (!kinds.has(name)) { if (kinds.size > 5000) kinds.clear(); kinds.set(name, "k" + order[kinds.size % order.length]); }
    return kinds.get(name);
  };
}
const nameKind = kindsOf([0, 1, 2, 3, 4, 5, 6]), ownPhase = kindsOf([4, 6, 5, 3, 1, 2, 0]);

const titleOf = (d) => [d.name || d.id, d.model].filter(Boolean).join(" · ");

// What stands out?
function standsOut() {
  if (!state.findings.length) return nothing("Nothing yet:", "no device reports an error, no rank is late, no operation takes more than before, no request takes twice the median, no operation ran with a throttled clock, no memory is almost full, no device is starved, and no copy moves through pageable memory.");
  return [el("ul", {class: "findings"}, ...state.findings.map((f) => el("li", {class: "finding"}, el("strong", {}, f.kind.replaceAll("_", " ") + ": "), el("bdi", {}, f.chain.join(" → ")), f.evidence ? el("bdi", {}, "; " + f.evidence) : "", f.remedy ? el("span", {class: "dim"}, " Try: " + f.remedy) : "", f.trace ? [" (", traceLink(f.trace, "trace " + f.trace.slice(0, 8)), ")"] : "")))];
}

// What is each GPU doing?
function devices(view) {
  if (!state.devices.length) return nothing("No device has been seen yet.", "Send spans of GPU work with hw.id to this Collector (OTLP on 127.0.0.1:4317), or enable the gpu receiver, which needs DCGM or NVML.");
  const list = state.devices, small = list.length > 6, W = widthOf(view), L = small ? 4 : 46, R = small ? 4 : 52;
  const first = Math.min(...list.map((d) => d.start)), last = Math.max(...list.map((d) => d.start + d.covered.length * d.step));
  const x = (t) => L + (t - first) / Math.max(1, last - first) * (W - L - R), timeAt = (px) => first + (px - L) / (W - L - R) * (last - first);
  const axis = () => {
    const n = Math.max(2, Math.min(8, Math.floor(W / 110))), labels = Array.from({length: n + 1}, (_, i) => first + (last - first) * i / n).map((t) => [x(t), clock(t * 1000)]);
    return node(svg("svg", {width: W, height: 16, "aria-hidden": "true"}), {}, under(labels, 12, W));
  };
  const words = state.live ? ["Drag over a strip, or use the arrow keys with Shift, to choose a time for all views."] : [];
  return [el("p", {class: "hint"}, ...words), axis(), ...list.map((d) => strip(d, {W, L, R, H: small ? 34 : list.length > 2 ? 64 : 96, small, x, timeAt, first, last})),
    legend([["covered by spans", "covered"], ["busy, reported by the device", "busy"], ["power", "powered"], ["throttled", "throttle"]]),
    details("devices table", "as a table", table("Devices over the time that is shown", [
      {title: "device", left: true, of: titleOf, cell: (d) => named(titleOf(d))},
      {title: "covered", of: (d) => meanOf(d.covered), cell: (d) => or(meanOf(d.covered), percent)},
      {title: "busy", of: (d) => meanOf(d.busy), cell: (d) => or(meanOf(d.busy), percent)},
      {title: "power", of: (d) => meanOf(d.power), cell: (d) => or(meanOf(d.power), (v) => sig(v) + " W")},
      {title: "hottest", of: (d) => Math.max(0, ...d.temperature), cell: (d) => or(Math.max(0, ...d.temperature), (v) => sig(v) + " °C")},
      {title: "throttled", of: (d) => meanOf(d.throttled), cell: (d) => or(meanOf(d.throttled), percent)},
    ], list, {key: "devices", most: 64}))];
}
function meanOf(list) {
  const known = list.filter((v) => v !== null);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : undefined;
}
// area returns the outline of a share over cells, without unknown cells.
function area(values, x, base, height) {
  let d = "", open = false;
  values.forEach((v, i) => {
    if (v === null || v === undefined) { if (open) d += `V${base}Z`; open = false; return; }
    const y = (base - v * height).toFixed(1);
    d += open ? `V${y}H${x(i + 1).toFixed(1)}` : `M${x(i).toFixed(1)} ${base}V${y}H${x(i + 1).toFixed(1)}`;
    open = true;
  });
  return d + (open ? `V${base}Z` : "");
}
function strip(d, g) {
  const {W, L, R, H, small, x, timeAt} = g, base = H - 2, height = H - 8, cellX = (i) => x(d.start + i * d.step);
  const power = d.power.map((v, i) => [v, i]).filter(([v]) => v !== null), most = Math.max(1, ...power.map(([v]) => v)), top = ticks(most, 2).pop();
  const cellAt = (px) => Math.floor((timeAt(px) - d.start) / d.step);
  const says = (i) => {
    if (i < 0 || i >= d.covered.length) return [];
    const has = (v, f) => (v === null || v === undefined ? "" : f(v)), t = (d.start + i * d.step) * 1000;
    return [`${titleOf(d)}, ${clock(t)}${d.step > 1 ? " to " + clock(t + d.step * 1000) : ""}`, has(d.covered[i], (v) => "covered by spans " + percent(v)) || "no span yet",
      has(d.busy[i], (v) => "busy, reported by the device, " + percent(v)), has(d.power[i], (v) => "power " + sig(v) + " W"), has(d.temperature[i], (v) => sig(v) + " °C"), d.throttled[i] ? "throttled " + percent(d.throttled[i]) + " of the time" : ""];
  };
  const parts = [svg("line", {x1: L, x2: W - R, y1: base, y2: base, class: "axis"}), svg("path", {d: area(d.busy, cellX, base, height), class: "busy"}),
    svg("path", {d: area(d.covered, cellX, base, height), class: "covered"})];
  if (power.length > 1) parts.push(svg("polyline", {class: "power", points: power.map(([v, i]) => `${((cellX(i) + cellX(i + 1)) / 2).toFixed(1)},${(base - v / top * height).toFixed(1)}`).join(" ")}));
  d.throttled.forEach((v, i) => { if (v) parts.push(svg("rect", {x: cellX(i), y: 0, width: Math.max(1, cellX(i + 1) - cellX(i)), height: Math.max(1, 6 * v), class: "throttle"})); });
  if (!small) parts.push(text(L - 6, 12, "100 %", "end"), text(L - 6, base, "0", "end"), power.length ? text(W - R + 6, base - most / top * height + 4, sig(most) + " W", "start", "powered") : "");
  const shade = () => {
    const p = live.pick;
    if (!p) return null;
    const a = Math.max(L, x(p.from / 1000)), b = Math.min(W - R, x(p.to / 1000));
    return b > a ? svg("rect", {x: a, y: 0, width: b - a, height: H, class: "picked"}) : null;
  };
  const picked = svg("g", {}, shade());
  const cursor = live.cursor && live.cursor.id === d.id ? live.cursor.at : null;
  if (cursor !== null) parts.push(svg("line", {x1: x(cursor), x2: x(cursor), y1: 0, y2: H, class: "cursor"}));
  const choosable = state.live;
  const key = (e) => {
    const step = Math.max(d.step, 5), at = cursor === null ? g.last - step : cursor;
    const move = {ArrowLeft: -step, ArrowRight: step, PageUp: -12 * step, PageDown: 12 * step, Home: g.first - at, End: g.last - step - at}[e.key];
    if (move === undefined || !choosable) return;
    e.preventDefault();
    const next = Math.min(g.last, Math.max(g.first, at + move));
    if (e.shiftKey) {
      const from = live.cursor && live.cursor.from !== undefined ? live.cursor.from : at;
      live.cursor = {id: d.id, at: next, from};
      choose(Math.min(from, next) * 1000, Math.max(from, next) * 1000);
    } else live.cursor = {id: d.id, at: next};
    draw();
    if (tips.has(document.activeElement)) focusTip(document.activeElement, [x(next + 0.5), H / 2]);
  };
  const drag = (e) => {
    if (!choosable || e.button !== 0) return;
    const box = e.currentTarget.getBoundingClientRect(), start = Math.min(g.last, Math.max(g.first, timeAt(e.clientX - box.left))), before = live.pick, target = e.currentTarget;
    target.setPointerCapture(e.pointerId);
    live.dragging = true;
    const move = (m) => {
      const now = Math.min(g.last, Math.max(g.first, timeAt(m.clientX - box.left)));
      live.pick = Math.abs(x(now) - x(start)) > 4 ? {from: Math.min(start, now) * 1000, to: Math.max(start, now) * 1000} : before;
      picked.replaceChildren(...[shade()].filter(Boolean));
      chosenInWords();
    };
    const done = () => {
      live.dragging = false;
      target.removeEventListener("pointermove", move);
      if (live.pick !== before && live.pick) choose(live.pick.from, live.pick.to);
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", done, {once: true});
    target.addEventListener("pointercancel", done, {once: true});
  };
  const label = `${titleOf(d)}: share of time covered by spans, power and throttling.${choosable ? " Arrow keys move, with Shift they choose a time, Escape takes that back." : ""}`;
  const draw1 = svg("svg", {width: W, height: H, class: choosable ? "strip choosable" : "strip", tabindex: 0, role: choosable ? "application" : "img", "aria-label": label, "data-key": "strip " + d.id,
    tip: ({x: px, node: n}) => says(cellAt(px - n.getBoundingClientRect().left)), onkeydown: key, onpointerdown: drag}, ...parts, picked);
  const mean = meanOf(d.covered), draws = meanOf(d.power), held = meanOf(d.throttled);
  return el("figure", {class: small ? "device small" : "device"}, el("figcaption", {}, named(titleOf(d)), el("span", {class: "dim"}, [or(mean, (v) => "covered " + percent(v)), or(draws, (v) => sig(v) + (d.metered ? " W on average" : " W, mean of its readings")),
    held ? "throttled " + percent(held) + " of the time" : ""].filter(Boolean).join(", "))), draw1, newest(d, W, L, R, small));
}
// newest draws the newest spans of a device on a separate axis, because an operation is far shorter than a second.
function newest(d, W, L, R, small) {
  if (!d.recent.length || small && W < 300) return null;
  const spans = d.recent.slice(-120), end = Math.max(...spans.map((r) => r.end)), begin = Math.min(...spans.map((r) => r.start)), u = (W - L - R) / Math.max(end - begin, 1e-6);
  const H = 16, parts = spans.map((r) => svg("rect", {x: L + (r.start - begin) * u, y: 1, width: Math.max((r.end - r.start) * u, 0.8), height: H - 4, class: "mark " + nameKind(r.name),
    onclick: () => openTrace(r.trace), tip: [r.name, `${seconds((r.end - r.start) / 1e3)}, ${seconds(Math.max(0, end - r.end) / 1e3)} before the newest end`, traceOf(r.trace) ? "click: its trace" : ""]}));
  if (!small) parts.push(text(L - 6, H - 4, "newest", "end"), text(W - R + 6, H - 4, seconds((end - begin) / 1e3)));
  return chart(`The newest ${spans.length} operations of ${titleOf(d)}, over ${seconds((end - begin) / 1e3)}`, W, H, ...parts);
}

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

// Which operation is memory bound?
const keyOf = (o) => [o.service, o.name, o.type].join("\n");
function operations(view) {
  const all = state.operations;
  if (!all.length) return nothing("No GPU spans in this time range.", live.pick ? "Choose another time, or reset." : "Point an OTLP exporter at this Collector, or choose a longer time.");
  const pick = (o) => { live.chosen = live.chosen === keyOf(o) ? "" : keyOf(o); changed(); draw(); };
  const points = all.filter((o) => o.intensity && o.flopRate).map((o) => ({...o, key: keyOf(o), choose: () => pick(o), chosen: keyOf(o) === live.chosen, lines: [o.name, o.service || "", "GPU time " + seconds(o.time),
    `${scaled(o.flopRate, "FLOP/s")} at ${sig(o.intensity)} FLOPs per byte`, or(o.byteRate, (v) => scaled(v, "B/s")), or(o.roofline, (v) => percent(v) + " of the roof"), o.bound ? "bound by " + o.bound : ""]}));
  const total = all.reduce((t, o) => t + o.time, 0), left = el("div", {}), split = el("div", {class: "split narrow-wide"}, left);
  left.append(points.length ? roofline({clientWidth: widthOf(view) > 900 ? widthOf(view) * 0.29 : widthOf(view)}, points, state.roofs)
    : empty("Nothing can be placed below a roof:", "no operation states both FLOPs and bytes. Declare gpuspan.Work{FLOPs, Read, Written}, or record shapes in PyTorch's profiler."));
  split.append(table(plural(all.length + (state.moreOperations || 0), "operation"), [
    {title: "operation", left: true, of: (o) => o.name, cell: (o) => el("button", {class: "plain", "data-key": "op " + keyOf(o), "aria-pressed": String(keyOf(o) === live.chosen), title: `${o.name}\n${o.service || ""}`, onclick: () => pick(o)}, el("bdi", {}, o.name))},
    {title: "type", left: true, of: (o) => [o.type, o.memory].filter(Boolean).join(", ")},
    {title: "count", of: (o) => o.count, cell: (o) => count(o.count)},
    {title: "GPU time", of: (o) => o.time, cell: (o) => el("span", {}, seconds(o.time), gauge(o.time / total))},
    {title: "J", help: "joules, with operations that ran inside it", of: (o) => o.total, cell: (o) => or(o.total, sig)},
    {title: "own J", help: "joules, without operations that ran inside it", of: (o) => o.energy, cell: (o) => or(o.energy, sig)},
    {title: "of roof", of: (o) => o.roofline, cell: (o) => or(o.roofline, percent)},
    {title: "bound", left: true, of: (o) => o.bound || "", cell: (o) => o.bound || ""},
    {title: "B/s", of: (o) => o.byteRate, cell: (o) => or(o.byteRate, (v) => scaled(v, "B/s"))},
    {title: "FLOP/s", of: (o) => o.flopRate, cell: (o) => or(o.flopRate, (v) => scaled(v, "FLOP/s"))},
    {title: "throttled", help: "runs with a throttled clock", of: (o) => o.held, cell: (o) => or(o.held, count)},
    {title: "trace", of: (o) => o.trace, cell: (o) => (o.trace ? traceLink(o.trace, "slowest") : "")},
  ], all, {key: "operations", sort: ["GPU time", true], filter: (o) => `${o.name} ${o.service || ""}`, chosen: (o) => keyOf(o) === live.chosen, most: 40, more: state.moreOperations}));
  return [split];
}
function gauge(share) {
  const inner = el("i", {}), box = el("span", {class: "gauge", "aria-hidden": "true"}, inner);
  inner.style.width = (100 * Math.max(0, Math.min(1, share || 0))).toFixed(1) + "%";
  return box;
}

// Where does the time of a step go?
function partsOfStep(s) {
  const list = [], comm = (s.phases || []).find((p) => p.name === "comm");
  for (const p of s.phases || []) if (p !== comm || !s.exposed) list.push([p.name, p.duration]);
  if (comm && s.exposed) list.push(["exposed communication", Math.min(s.exposed, comm.duration)]);
  const sum = list.reduce((t, [, d]) => t + d, 0), fit = sum > s.duration ? s.duration / sum : 1; // phases that overlap are drawn to the step's length
  if (sum < s.duration) list.push(["other", s.duration - sum]);
  return list.map(([n, d]) => [n, d * fit, phaseKind(n), d]);
}
function steps(view) {
  const all = state.steps.filter((s) => s.duration > 0);
  if (!all.length) return nothing("No step ended in this time range.", "A loop makes them: train.Loop in Go, otelgpu.loop in Python, ProfilerStep in PyTorch's profiles.");
  const columnsOf = new Map(); // one column for the same steps of all ranks
  for (const s of all) { const k = [s.service, s.name, s.index].join("\n"); columnsOf.set(k, [...(columnsOf.get(k) || []), s]); }
  const groups = [...columnsOf.values()], middle = median(all.map((s) => s.duration)), names = new Set(), last = ["exposed communication", "other"];
  const ranked = all.some((s) => s.rank > 0), label = (s) => `${s.name} ${s.index}${ranked && s.rank >= 0 ? " r" + s.rank : ""}`;
  const every = groups.map((list) => {
    const parts = new Map();
    for (const s of list) for (const [n, d, kind, whole] of partsOfStep(s)) { const p = parts.get(n) || [n, 0, kind, 0]; p[1] += d / list.length; p[3] += whole / list.length; parts.set(n, p); }
    return [...parts.values()];
  });
  for (const [n] of every.flat()) if (!last.includes(n)) names.add(n);
  for (const n of last) if (every.some((parts) => parts.some(([m]) => m === n))) names.add(n);
  const order = [...names]; // steps state their phases in any order
  const list = groups.map((steps, i) => {
    const parts = every[i].sort(([a], [b]) => order.indexOf(a) - order.indexOf(b)), of = (f) => steps.reduce((t, s) => t + (f(s) || 0) / steps.length, 0), s = steps[0], total = of((s) => s.duration);
    const slowest = steps.reduce((a, b) => ((a.worst || a.duration) >= (b.worst || b.duration) ? a : b)), worst = slowest.worst || slowest.duration, n = s.count || 1;
    return {label: String(s.index), total, parts, mark: worst > 1.5 * middle, open: traceOf(slowest.trace) ? () => openTrace(slowest.trace) : undefined, lines: [
      `${s.name} ${s.index}${n > 1 ? ` and ${n - 1} more` : ""}${steps.length > 1 ? `, mean of ${steps.length} ranks` : s.rank >= 0 ? ", rank " + s.rank : ""}: ${seconds(total)}`, n > 1 || steps.length > 1 ? `longest ${seconds(worst)}${slowest.rank >= 0 ? ", rank " + slowest.rank : ""}` : "",
      ...parts.map(([n, , , d]) => `${n} ${seconds(d)}`), of((s) => s.exposed) && !parts.some(([n]) => n[0] === "e") ? "exposed communication " + seconds(of((s) => s.exposed)) : "",
      of((s) => s.mfu) ? "MFU " + percent(of((s) => s.mfu)) : "", of((s) => s.items) ? `${sig(of((s) => s.items) / total)} ${s.itemType || "items"}/s per rank` : "", of((s) => s.energy) ? sig(of((s) => s.energy)) + " J per rank" : "", worst > 1.5 * middle ? `longest: ${sig(worst / middle)} times the median` : "", traceOf(slowest.trace) ? "click: its trace" : ""]};
  });
  const slow = state.longest || [], since = state.stepsSince ? el("p", {class: "hint"}, `Steps before ${clock(state.stepsSince)} are no longer kept.`) : null;
  return [columns(view, `Length of ${plural(state.stepCount, "step")} by phase; the median is ${seconds(middle)}`, list, [...names].map((n) => [n, phaseKind(n)]), {key: "step"}),
    table(`The longest steps; the median of ${plural(state.stepCount, "step")} is ${seconds(middle)}`, [
      {title: "step", left: true, of: label, cell: (s) => traceLink(s.trace, label(s))}, {title: "length", of: (s) => s.duration, cell: (s) => seconds(s.duration)},
      {title: "× median", of: (s) => s.duration / middle, cell: (s) => sig(s.duration / middle)},
      {title: "exposed", help: "exposed communication", of: (s) => s.exposed, cell: (s) => or(s.exposed, seconds)}, {title: "other", of: (s) => s.other, cell: (s) => or(s.other, seconds)},
      {title: "items/s", of: (s) => s.items / s.duration, cell: (s) => (s.items ? sig(s.items / s.duration) : "")},
      {title: "MFU", of: (s) => s.mfu, cell: (s) => or(s.mfu, percent)}, {title: "J", of: (s) => s.energy, cell: (s) => or(s.energy, sig)}], slow, {key: "slow steps"}), since];
}

// Which requests use the most energy?
function requests() {
  if (!state.requests.length) return nothing("No usage records in this time range.", "Batches that link to their requests get one from gpu_requests: Section.LinkItems in Go, links= in Python. Requests of vLLM, SGLang, TGI and Triton get theirs with --config llm.");
  const most = Math.max(...state.requests.map((q) => q.energy || 0), 1e-12), sum = (f) => state.requests.reduce((t, q) => t + (f(q) || 0), 0), kinds = new Set();
  const metered = sum((q) => (q.energy ? q.items : 0)); // joules and items of the same requests
  for (const q of state.requests) for (const p of q.parts || []) kinds.add(p.name);
  const names = [...kinds].slice(0, 5);
  const most200 = state.moreRequests ? `Top ${state.requests.length} of ${plural(state.requests.length + state.moreRequests, "request")} by energy` : plural(state.requests.length, "request");
  return [el("p", {class: "hint"}, `${most200}: ${sig(sum((q) => q.energy))} J${metered ? `, ${sig(sum((q) => (q.items ? q.energy : 0)) / metered)} J per item` : ""}${sum((q) => q.gpuTime) ? `, ${seconds(sum((q) => q.gpuTime))} of GPU time` : ""}.`),
    table("Requests by use of the GPU", [
      {title: "request", left: true, of: (q) => q.trace, cell: (q) => traceLink(q.trace, `${q.service || ""} ${q.trace.slice(0, 8)}`)},
      {title: "took", help: "as the server saw it", of: (q) => q.duration, cell: (q) => or(q.duration, seconds)},
      {title: "J", of: (q) => q.energy, cell: (q) => (q.energy ? el("span", {}, sig(q.energy), gauge(q.energy / most)) : "")},
      {title: "J per item", of: (q) => (q.items ? q.energy / q.items : 0), cell: (q) => (q.energy && q.items ? sig(q.energy / q.items) : "")},
      {title: "items", of: (q) => q.items, cell: (q) => or(q.items, (n) => named(sig(n) + (q.itemType ? ` ${short(q.itemType, 16)}${n === 1 || q.itemType.endsWith("s") ? "" : "s"}` : "")))}, {title: "GPU time", of: (q) => q.gpuTime, cell: (q) => or(q.gpuTime, seconds)},
      {title: "queue", of: (q) => q.queue, cell: (q) => or(q.queue, seconds)}, {title: "first item", of: (q) => q.firstItem, cell: (q) => or(q.firstItem, seconds)},
      ...names.map((n) => ({title: n, of: (q) => partOf(q, n), cell: (q) => or(partOf(q, n), seconds)}))],
    state.requests, {key: "requests", sort: ["J", true], most: 15})];
}
const partOf = (q, n) => ((q.parts || []).find((p) => p.name === n) || {}).duration;

// Which rank is late?
function ranks(view) {
  const ranked = state.steps.filter((s) => s.late), own = (s) => Math.max(0, s.duration - (s.exposed || 0)), byRank = new Map();
  const columns = [...new Set(ranked.map((s) => [s.service, s.name, s.index].join("\n")))], at = new Map(columns.map((c, i) => [c, i]));
  for (const s of ranked) {
    const r = byRank.get(s.rank) || {rank: s.rank, steps: [], count: 0, sum: 0, worst: 0}, n = s.count || 1;
    r.steps.push(s);
    r.count += n;
    r.sum += s.late * n;
    r.worst = Math.max(r.worst, s.worstLate);
    byRank.set(s.rank, r);
  }
  if (byRank.size < 2) return nothing("Fewer than two ranks have sent the same steps.", "Ranks are identified by the resource attributes gpu.job.id and gpu.job.rank: rank.Detector in Go, otelgpu.job() in Python.");
  const every = [...byRank.values()], lateness = (r) => r.sum / r.count, list = every.slice().sort((a, b) => lateness(b) - lateness(a)).slice(0, 64).sort((a, b) => a.rank - b.rank);
  const W = widthOf(view), L = 60, B = 18, cell = Math.max(5, Math.min(20, 300 / list.length)), T = 4, H = T + list.length * cell + B, each = (W - L) / columns.length, parts = [];
  list.forEach((r, row) => {
    for (const s of r.steps) {
      const ratio = s.worstLate, n = s.count || 1, late = ratio > 1.05, how = late ? Math.min(1, 0.35 + (ratio - 1.05) * 3) : Math.min(0.55, 0.2 + Math.abs(ratio - 1) * 3);
      parts.push(svg("rect", {x: L + at.get([s.service, s.name, s.index].join("\n")) * each, y: T + row * cell, width: Math.max(each - 0.8, 0.6), height: cell - 1, class: "mark " + (late ? "k4" : "k0"), "fill-opacity": how.toFixed(2), onclick: () => openTrace(s.trace),
        tip: [`rank ${s.rank}, step ${s.index}${n > 1 ? ` and ${n - 1} more` : ""}`, `own time ${seconds(own(s))}, ${sig(s.late)} times the median of the ranks`, n > 1 ? `worst: ${sig(ratio)} times` : "", or(s.exposed, (v) => "exposed communication " + seconds(v)), traceOf(s.trace) ? "click: its trace" : ""]}));
    }
    if (cell >= 11 || row % Math.ceil(11 / cell) === 0) parts.push(text(L - 6, T + (row + 0.5) * cell + 4, "rank " + r.rank, "end"));
  });
  parts.push(...under(columns.map((c, i) => [L + (i + 0.5) * each, c.split("\n")[2]]), H - 4, W));
  const late = every.slice().sort((a, b) => lateness(b) - lateness(a))[0], mean = lateness(late);
  return [el("p", {class: "hint"}, mean > 1.02 ? `Rank ${late.rank} is the slowest: its own time is ${sig(mean)} times the median of the ranks.` : "No rank is notably slower than the others."),
    chart("Own time (step without exposed communication) of each rank against the median of the ranks in that step", W, H, ...parts),
    legend([["at most 5 % slower than the median of the ranks", "k0"], ["more than 5 % slower", "k4"]]),
    details("ranks table", "as a table", table("Own time of ranks against the median", [{title: "rank", of: (r) => r.rank, zero: true}, {title: "steps", of: (r) => r.count}, {title: "mean", of: lateness, cell: (r) => `× ${sig(lateness(r))}`},
      {title: "worst", of: (r) => r.worst, cell: (r) => `× ${sig(r.worst)}`}], every, {key: "ranks", sort: ["mean", true], most: 64}))];
}

// How full is each GPU's memory?
const mib = (v) => (v === null ? null : v * 2 ** 20);
function memory(view) {
  const known = state.devices.filter((d) => d.memory.some((v) => v !== null));
  if (!known.length) return nothing("No device has reported its memory usage.", "The gpu receiver does (hw.gpu.memory.usage), from DCGM or NVML.");
  const list = known.map((d) => ({name: titleOf(d), limit: mib(d.limit || null), points: d.memory.map((v, i) => [(d.start + i * d.step) * 1000, mib(v)])}));
  const from = Math.min(...known.map((d) => d.start)) * 1000, to = Math.max(...known.map((d) => d.start + d.memory.length * d.step)) * 1000;
  const rows = list.map((l) => { const all = l.points.map(([, v]) => v).filter((v) => v !== null); return {...l, now: all[all.length - 1], most: Math.max(...all)}; });
  return [levels(view, `Memory in use on ${plural(list.length, "device")}`, list, from, to), details("memory table", "as a table", table("Memory of devices over the time that is shown", [
    {title: "device", left: true, of: (r) => r.name, cell: (r) => named(r.name)}, {title: "in use", of: (r) => r.now, cell: (r) => bytes(r.now)}, {title: "most", of: (r) => r.most, cell: (r) => bytes(r.most)},
    {title: "of", of: (r) => r.limit, cell: (r) => or(r.limit, bytes)}, {title: "most, share", of: (r) => (r.limit ? r.most / r.limit : 0), cell: (r) => (r.limit ? percent(r.most / r.limit) : "")}], rows, {key: "memory", most: 64}))];
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
