// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// What happened when? Devices, steps, ranks, requests and memory on one time axis with one selection.

const titleOf = (d) => [d.name || d.id, d.model].filter(Boolean).join(" · ");
function meanOf(list) {
  const known = list.filter((v) => v !== null && v !== undefined);
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
function line(values, x, y) {
  let d = "", open = false;
  values.forEach((v, i) => {
    if (v === null || v === undefined) { open = false; return; }
    d += `${open ? "L" : "M"}${((x(i) + x(i + 1)) / 2).toFixed(1)} ${y(v).toFixed(1)}`;
    open = true;
  });
  return d;
}

// trackWidth returns the width of a track's drawing: names are left of it, in narrow windows above it.
function trackWidth(view, right = 76) {
  const all = widthOf(view), narrow = all < 620;
  return {W: narrow ? all : all - 136 - right, narrow};
}
function axisOf(W, label) {
  const n = Math.max(2, Math.min(8, Math.floor(W / 110)));
  return node(svg("svg", {width: W, height: 16, class: "times", "aria-hidden": "true"}), {}, under(Array.from({length: n + 1}, (_, i) => [i / n * W, label(i / n)]), 12, W));
}

// axis is the shown time: of the devices' cells, or of the range.
const axis = {from: 0, to: 1, W: 1, settled: 0, tracks: [], x: (t) => Math.max(-9, Math.min(axis.W + 9, (t - axis.from) / (axis.to - axis.from) * axis.W || 0)), at: (px) => axis.from + px / axis.W * (axis.to - axis.from)};
function setAxis(W) {
  const ds = state.devices, whole = state.whole || state;
  axis.W = W;
  axis.to = ds.length ? Math.max(...ds.map((d) => (d.start + d.covered.length * d.step) * 1000)) : state.now;
  axis.from = ds.length ? Math.min(...ds.map((d) => d.start * 1000)) : (live.pick ? whole.from : axis.to - (state.range || 60) * 1000);
  // In the newest seconds no spans have arrived yet, although devices were busy before.
  const last = Math.max(0, ...ds.map((d) => (d.start + (d.covered.findLastIndex((v) => v > 0) + 1) * d.step) * 1000));
  axis.settled = last > axis.from && axis.to - last < 30_000 ? last : axis.to;
}
const arriving = (H) => (axis.to - axis.settled > 1500 ? svg("rect", {x: axis.x(axis.settled), y: 0, width: axis.W - axis.x(axis.settled), height: H, class: "arriving"}) : null);

function when(view) {
  const {W, narrow} = trackWidth(view);
  setAxis(W);
  const devices = state.devices, steps = stepTracks(), list = [findingTrack(), ...devices.map((d, i) => deviceTrack(d, i, devices.length)), ...steps, rankTrack(), requestTrack(), memoryTrack()].filter(Boolean);
  if (!list.length) return missing("devices", "No device has been seen yet.", "Send spans of GPU work with hw.id to this Collector (OTLP on 127.0.0.1:4317), or enable the gpu receiver, which needs DCGM or NVML.");
  axis.tracks = list;
  if (!list.some((t) => t.key === live.cursor?.key)) live.cursor = null;
  const first = live.cursor ? live.cursor.key : list[0].key;
  const rows = list.map((t) => {
    const drawing = svg("svg", {width: W, height: t.H, viewBox: `0 0 ${W} ${t.H}`, class: "strip", role: "application", tabindex: t.key === first ? 0 : -1, "data-key": "strip " + t.key,
      "aria-label": `${t.label}: ${t.says0 || t.sub}. Left and right move, up and down choose a row, Shift selects a time, Enter opens the trace, Escape clears.`,
      tip: ({x, node: n}) => t.says(axis.at(x - n.getBoundingClientRect().left))},
    svg("rect", {width: W, height: t.H, "fill-opacity": 0}), ...t.parts, arriving(t.H));
    return el("div", {class: "track " + (t.cls || "")}, t.names && !narrow ? t.names : el("div", {class: "name"}, el("bdi", {class: "strong", title: t.label}, short(t.label, t.cls === "tight" ? 17 : 60)), " ", el("span", {class: "dim"}, t.sub)), drawing, narrow ? "" : el("div", {class: "scale"}, ...(t.scale || []).map(([y, s]) => { const n = el("span", {}, s); n.style.top = y + "px"; return n; })));
  });
  const overlay = el("div", {class: "overlay", "aria-hidden": "true"}, el("div", {class: "picked"}), el("div", {class: "cursor"}));
  overlay.style.width = W + "px";
  const panel = el("div", {class: narrow ? "panel narrow" : "panel"}, el("div", {class: "track axisrow"}, el("div", {class: "name dim"}, narrow ? "" : offset(state.now)), axisOf(W, (f) => clock(axis.from + f * (axis.to - axis.from))), ""), ...rows, overlay);
  panel.addEventListener("pointerdown", brush);
  panel.addEventListener("pointermove", (e) => { const s = e.target.closest("svg.strip"); if (s && !live.dragging) moveCursor(panel, axis.at(e.clientX - s.getBoundingClientRect().left)); });
  panel.addEventListener("pointerleave", () => { if (!live.dragging) moveCursor(panel, live.cursor ? live.cursor.at : null); });
  panel.addEventListener("keydown", trackKeys);
  shade(panel);
  moveCursor(panel, live.cursor ? live.cursor.at : null);
  const kinds = [["covered by spans", "covered"], ["busy, reported by the device", "busyline"]];
  if (devices.some((d) => d.power.some((v) => v !== null))) kinds.push([devices.some((d) => d.metered) ? "power, from the energy counter" : "power, as read", "powerline"]);
  if (devices.some((d) => d.throttled.some((v) => v))) kinds.push(["throttled, share of the time", "throttle"]);
  for (const t of list) for (const k of t.legend || []) if (!kinds.some(([n]) => n === k[0])) kinds.push(k);
  if (axis.to - axis.settled > 1500) kinds.push(["spans still arriving", "arriving"]);
  return [el("p", {class: "hint"}, "Drag over a row to select a time; every number on the page follows."), panel, legend(devices.length ? kinds : kinds.slice(2)), ...newestOf(view), ...tablesOf()];
}

// shade draws the selection, moveCursor the cursor, over all rows at once.
function shade(panel) {
  const n = panel.querySelector(".overlay .picked"), p = live.pick, a = p ? Math.max(0, axis.x(p.from)) : 0, b = p ? Math.min(axis.W, axis.x(p.to)) : 0;
  n.hidden = !(b > a);
  n.style.left = a + "px";
  n.style.width = Math.max(0, b - a) + "px";
}
function moveCursor(panel, t) {
  const n = panel.querySelector(".overlay .cursor");
  n.hidden = t === null || t < axis.from || t > axis.to;
  if (!n.hidden) n.style.left = axis.x(t) + "px";
}
const within = (t) => Math.min(axis.to, Math.max(axis.from, t));

function brush(e) {
  const strip = e.target.closest("svg.strip");
  if (!strip || e.button !== 0) return;
  const panel = e.currentTarget, left = strip.getBoundingClientRect().left, start = within(axis.at(e.clientX - left)), before = live.pick;
  const track = axis.tracks.find((t) => "strip " + t.key === strip.dataset.key);
  strip.setPointerCapture(e.pointerId);
  live.dragging = true;
  const move = (m) => {
    const now = within(axis.at(m.clientX - left));
    live.pick = Math.abs(axis.x(now) - axis.x(start)) > 4 ? {from: Math.min(start, now), to: Math.max(start, now)} : before;
    shade(panel);
    moveCursor(panel, now);
    chosenInWords();
  };
  const done = (m) => {
    live.dragging = false;
    strip.removeEventListener("pointermove", move);
    if (live.pick !== before) choose(live.pick.from, live.pick.to);
    else if (m.type === "pointerup" && track && track.trace) openTrace(track.trace(start));
  };
  strip.addEventListener("pointermove", move);
  strip.addEventListener("pointerup", done, {once: true});
  strip.addEventListener("pointercancel", done, {once: true});
}
function trackKeys(e) {
  const strip = e.target.closest("svg.strip");
  if (!strip) return;
  const key = strip.dataset.key.slice(6), i = axis.tracks.findIndex((t) => t.key === key), step = Math.max(1000, ...state.devices.map((d) => d.step * 1000), (axis.to - axis.from) / 120);
  const at = live.cursor ? live.cursor.at : axis.to - step, panel = e.currentTarget;
  const moves = {ArrowLeft: -step, ArrowRight: step, PageUp: -12 * step, PageDown: 12 * step, Home: axis.from - at, End: axis.to - step - at};
  let next = key, to = at;
  if (e.key === "ArrowUp" || e.key === "ArrowDown") next = (axis.tracks[i + (e.key === "ArrowUp" ? -1 : 1)] || axis.tracks[i]).key;
  else if (e.key === "Enter") { const t = axis.tracks[i]; if (t.trace) openTrace(t.trace(at)); return; }
  else if (moves[e.key] !== undefined) to = within(at + moves[e.key]);
  else return;
  e.preventDefault();
  const from = e.shiftKey ? (live.cursor && live.cursor.from !== undefined ? live.cursor.from : at) : undefined;
  live.cursor = {key: next, at: to, from};
  for (const n of panel.querySelectorAll("svg.strip")) n.setAttribute("tabindex", n.dataset.key === "strip " + next ? 0 : -1);
  const now = [...panel.querySelectorAll("svg.strip")].find((n) => n.dataset.key === "strip " + next);
  now.focus();
  moveCursor(panel, to);
  focusTip(now, [axis.x(to) + 0.5, 8]);
  if (from !== undefined && from !== to) choose(Math.min(from, to), Math.max(from, to));
}

// findingTrack marks when the findings occurred.
function findingTrack() {
  const list = state.findings.filter((f) => f.from && f.to >= axis.from && f.from <= axis.to), row = 14;
  if (!list.length) return null;
  const name = (f) => f.kind.replaceAll("_", " "), H = list.length * row, names = el("div", {class: "name ranks"}, ...list.map((f, i) => { const n = el("span", {}, short(name(f), 18)); n.style.top = i * row + "px"; return n; }));
  names.style.height = H + "px";
  const near = (t) => { const away = (f) => Math.max(0, f.from - t, t - f.to) * 1e6 + f.to - f.from; return list.reduce((a, b) => (away(b) < away(a) ? b : a)); };
  return {key: "findings", label: "Findings", sub: list.map(name).join(", "), H, names, trace: (t) => near(t).trace,
    parts: list.map((f, i) => svg("rect", {x: axis.x(f.from).toFixed(1), y: i * row + 3, width: Math.max(4, axis.x(f.to) - axis.x(f.from)).toFixed(1), height: 8, rx: 2, class: "finding " + (causeOf[f.kind] || "")})),
    says: (t) => { const f = near(t); return [name(f) + ", " + clock(f.from) + (f.to - f.from > 1000 ? " to " + clock(f.to) : ""), inUnits(f.chain.join(", then ")), f.trace ? "click: its trace" : ""]; }};
}

const has = (v, f) => (v === null || v === undefined ? "" : f(v));
function deviceTrack(d, i, n) {
  const big = n <= 4, mid = n <= 8, H = big ? 62 : mid ? 40 : 14, x = (k) => axis.x((d.start + k * d.step) * 1000), known = d.power.some((v) => v !== null);
  const most = ticks(Math.max(1, ...state.devices.flatMap((d) => d.power.map((v) => v || 0))), 4).pop();
  const held = d.throttled.some((v) => v), low = H - (big ? 7 : 4), mid1 = !mid ? low : known ? Math.round(low * 0.56) : low; // lanes: shares to mid1, power to low, throttling below
  const parts = [svg("path", {d: area(d.covered, x, mid1, mid1 - 3), class: "covered"}), svg("path", {d: line(d.busy, x, (v) => mid1 - v * (mid1 - 3)), class: "busyline"})];
  if (known && mid) parts.push(svg("line", {x1: 0, x2: axis.W, y1: low, y2: low, class: "axis"}), svg("path", {d: line(d.power, x, (v) => low - v / most * (low - mid1 - 4)), class: "powerline"}));
  if (held) parts.push(svg("path", {d: area(d.throttled.map((v) => v || null), x, H, H - low - 1), class: "throttle"}));
  const cells = {covered: meanOf(shownCells(d, "covered")), busy: meanOf(shownCells(d, "busy")), power: meanOf(shownCells(d, "power")), throttled: meanOf(shownCells(d, "throttled"))};
  const sub = [has(cells.busy, (v) => percent(v) + " busy") || has(cells.covered, (v) => percent(v) + " covered"), mid ? has(cells.power, (v) => sig(v) + " W") : "", cells.throttled ? "throttled " + percent(cells.throttled) : ""].filter(Boolean).join(" · ");
  return {key: d.id, label: d.name || d.id, sub: mid ? sub : "", H, parts, cls: mid ? "" : "tight", says0: sub, scale: !mid ? [] : [[0, "0 – 100 %"], ...(known ? [[mid1 - 2, `0 – ${sig(most)} W`]] : []), ...(held && big ? [[low - 5, "throttled"]] : [])],
    trace: (t) => { const r = (d.recent || []).filter((r) => r.start <= t && r.end >= t).pop(); return r && r.trace; },
    says: (t) => {
      const k = Math.floor((t / 1000 - d.start) / d.step);
      if (k < 0 || k >= d.covered.length) return [];
      const at = (d.start + k * d.step) * 1000;
      return [`${titleOf(d)}, ${clock(at)}${d.step > 1 ? " to " + clock(at + d.step * 1000) : ""}`, has(d.covered[k], (v) => "covered by spans " + percent(v)) || "no span yet", has(d.busy[k], (v) => "busy, reported by the device, " + percent(v)),
        has(d.power[k], (v) => `power ${sig(v)} W${d.metered ? ", from the energy counter" : ""}`), has(d.temperature[k], (v) => sig(v) + " °C"), d.throttled[k] ? "throttled " + percent(d.throttled[k]) + " of the time" : "", at + d.step * 1000 > axis.settled && axis.settled < axis.to ? "spans still arriving" : ""];
    }};
}

function partsOfStep(s) {
  const list = [], comm = (s.phases || []).find((p) => p.name === "comm");
  for (const p of s.phases || []) if (p !== comm || !s.exposed) list.push([p.name, p.duration]);
  if (comm && s.exposed) list.push(["exposed communication", Math.min(s.exposed, comm.duration)]);
  const sum = list.reduce((t, [, d]) => t + d, 0), fit = sum > s.duration ? s.duration / sum : 1; // phases that overlap are drawn to the step's length
  if (sum < s.duration) list.push(["other", s.duration - sum]);
  return list.map(([n, d]) => [n, d * fit, d]);
}
// stepColumns returns the steps of each loop: the same step of all ranks is one column, drawn at its time.
function stepColumns() {
  const loops = new Map();
  for (const s of state.steps) {
    if (!(s.duration > 0)) continue;
    const k = loopOf(s), l = loops.get(k) || {key: k, whose: whose(s), name: s.name, columns: new Map()}, c = l.columns.get(s.index) || {index: s.index, steps: [], from: Infinity, to: 0};
    c.steps.push(s);
    c.from = Math.min(c.from, stepStart(s));
    c.to = Math.max(c.to, s.t);
    l.columns.set(s.index, c);
    loops.set(k, l);
  }
  return [...loops.values()].sort((a, b) => b.columns.size - a.columns.size).map((l) => ({...l, columns: [...l.columns.values()].sort((a, b) => a.from - b.from)}));
}
function stepTracks() {
  return stepColumns().slice(0, 4).map(({key, name, whose, columns}, n) => {
    const H = n ? 40 : 66, names = new Set(), order = ["exposed communication", "other"], middle = meanStep(columns.flatMap((c) => c.steps));
    for (const c of columns) {
      c.total = mean(c.steps, (s) => s.duration);
      c.parts = new Map();
      for (const s of c.steps) for (const [p, d, whole] of partsOfStep(s)) { const x = c.parts.get(p) || [0, 0]; c.parts.set(p, [x[0] + d / c.steps.length, x[1] + whole / c.steps.length]); }
      c.slowest = c.steps.reduce((a, b) => ((a.worst || a.duration) >= (b.worst || b.duration) ? a : b));
      for (const p of c.parts.keys()) if (!order.includes(p)) names.add(p);
    }
    for (const p of order) if (columns.some((c) => c.parts.has(p))) names.add(p);
    const all = [...names], top = ticks(Math.max(...columns.map((c) => c.total)), 2).pop(), y = (v) => H - v / top * (H - 2), paths = new Map(all.map((p) => [p, ""]));
    for (const c of columns) {
      let sum = 0;
      const left = axis.x(c.from), w = Math.max(0.7, axis.x(c.to) - left - (axis.x(c.to) - left > 3 ? 0.7 : 0));
      for (const p of all) {
        const [d] = c.parts.get(p) || [0];
        if (!(d > 0)) continue;
        paths.set(p, paths.get(p) + `M${left.toFixed(1)} ${y(sum).toFixed(1)}h${w.toFixed(1)}V${y(sum + d).toFixed(1)}h-${w.toFixed(1)}z`);
        sum += d;
      }
    }
    const at = (t) => columns.find((c) => c.from <= t && c.to >= t) || columns.reduce((a, b) => (Math.abs((b.from + b.to) / 2 - t) < Math.abs((a.from + a.to) / 2 - t) ? b : a)), count0 = columns.reduce((t, c) => t + Math.max(...c.steps.map((s) => s.count || 1)), 0);
    return {key: "steps " + key, label: `Steps of ${name}`, sub: `${whose ? whose + " · " : ""}${plural(count0, "step")} · mean ${seconds(middle)}`, H, cls: "steps", scale: [[0, seconds(top)], [H - 12, "0"]],
      parts: [...all.map((p) => svg("path", {d: paths.get(p), class: colorOf(p), "data-phase": p})), svg("line", {x1: 0, x2: axis.W, y1: y(middle), y2: y(middle), class: "median"})], legend: all.map((p) => [p, colorOf(p)]),
      trace: (t) => at(t).slowest.trace, columns,
      says: (t) => {
        const c = at(t), s = c.steps[0], n = Math.max(...c.steps.map((s) => s.count || 1)), of = (f) => mean(c.steps, (s) => f(s) || 0), worst = c.slowest.worst || c.slowest.duration;
        return [`${name} ${c.index}${n > 1 ? ` and ${n - 1} more` : ""}${c.steps.length > 1 ? `, mean of ${c.steps.length} ranks` : s.rank >= 0 ? ", rank " + s.rank : ""}: ${seconds(c.total)}`, n > 1 || c.steps.length > 1 ? `longest ${seconds(worst)}${c.slowest.rank >= 0 ? ", rank " + c.slowest.rank : ""}` : "",
          ...all.filter((p) => c.parts.has(p)).map((p) => `${p} ${seconds(c.parts.get(p)[1])}`), of((s) => s.mfu) ? "MFU " + percent(of((s) => s.mfu)) : "", of((s) => s.items) ? `${sig(of((s) => s.items) / c.total)} ${s.itemType || "items"}/s per rank` : "", of((s) => s.energy) ? sig(of((s) => s.energy)) + " J per rank" : "",
          worst > 1.5 * middle ? `longest: ${sig(worst / middle)} times the mean` : "", "click: its trace"];
      }};
  });
}
const mean = (list, f) => list.reduce((t, s) => t + f(s), 0) / list.length;
const meanStep = (list, n = (s) => s.count || 1) => mean(list, (s) => s.duration * n(s)) / mean(list, n);

// A rank is late in a step if its own time (without exposed communication) is above the median of the ranks.
const ownTime = (s) => Math.max(0, s.duration - (s.exposed || 0));
const delayOf = (s) => (s.late > 1 ? ownTime(s) * (1 - 1 / s.late) : 0);
const byLoopAndRank = (a, b) => a.whose.localeCompare(b.whose) || a.rank - b.rank, nameOfRank = (r) => `rank ${r.rank}${r.whose ? " of " + r.whose : ""}`;
function rankRows() {
  const rows = new Map();
  for (const s of state.steps) {
    if (!s.late) continue;
    const k = loopOf(s) + "\n" + s.rank, r = rows.get(k) || {rank: s.rank, whose: whose(s), steps: [], count: 0, sum: 0, delay: 0, worst: 0}, n = s.count || 1;
    r.steps.push(s);
    r.count += n;
    r.sum += s.late * n;
    r.delay += delayOf(s) * n;
    r.worst = Math.max(r.worst, s.worstLate);
    rows.set(k, r);
  }
  return [...rows.values()].map((r) => ({...r, mean: r.sum / r.count, delay: r.delay / r.count})).sort(byLoopAndRank);
}
const lateness = [[1.05, "onTime", "at most 5 % slower than the median of the ranks"], [1.15, "late1", "more than 5 % slower"], [1.3, "late2", "more than 15 %"], [Infinity, "late3", "more than 30 %"]];
function rankTrack() {
  const every = rankRows();
  if (every.length < 2) return null;
  const list = every.length > 64 ? every.slice().sort((a, b) => b.mean - a.mean).slice(0, 64).sort(byLoopAndRank) : every;
  const row = Math.max(4, Math.min(15, 320 / list.length)), H = Math.ceil(list.length * row), paths = lateness.map(() => ""), worst = list.reduce((a, b) => (b.mean > a.mean ? b : a));
  list.forEach((r, i) => {
    for (const s of r.steps) {
      const left = axis.x(stepStart(s)), w = Math.max(0.7, axis.x(s.t) - left - (axis.x(s.t) - left > 3 ? 0.7 : 0));
      paths[lateness.findIndex(([most]) => s.worstLate <= most)] += `M${left.toFixed(1)} ${(i * row).toFixed(1)}h${w.toFixed(1)}v${(row - 1).toFixed(1)}h-${w.toFixed(1)}z`;
    }
  });
  const every2 = Math.ceil(12 / row), names = el("div", {class: "name ranks"}, ...list.map((r, i) => { if (i % every2) return null; const n = el("span", {title: nameOfRank(r)}, el("strong", {}, short(nameOfRank(r), 16)), every2 === 1 ? el("span", {class: "dim"}, r === worst && r.mean > 1.02 ? " late" : "") : ""); n.style.top = i * row + "px"; return n; }));
  names.style.height = H + "px";
  const says = worst.mean > 1.02 ? `${nameOfRank(worst)} is the slowest: its own time is ${sig(worst.mean)} times the median, ${seconds(worst.delay)} more` : "no rank is notably slower than the others";
  return {key: "ranks", label: "Ranks", sub: says, H, cls: "ranks", names, scale: worst.mean > 1.02 ? [[Math.max(0, list.indexOf(worst) * row - 2), `+${seconds(worst.delay)}`]] : [], legend: lateness.filter((_, i) => paths[i]).map(([, cls, n]) => [n, cls]),
    parts: lateness.map(([, cls], i) => (paths[i] ? svg("path", {d: paths[i], class: cls}) : null)).filter(Boolean),
    trace: (t) => (worst.steps.find((s) => stepStart(s) <= t && s.t >= t) || {}).trace,
    says: (t) => [`Own time against the median of the ranks of the step, ${clock(t)}`, ...list.map((r) => [r, r.steps.find((s) => stepStart(s) <= t && s.t >= t)]).filter(([, s]) => s).sort((a, b) => b[1].worstLate - a[1].worstLate).slice(0, 5)
      .map(([r, s]) => `${nameOfRank(r)}, step ${s.index}${s.count > 1 ? ` and ${s.count - 1} more` : ""}: ${sig(s.late)} times the median${delayOf(s) ? `, +${seconds(delayOf(s))}` : ""}`)]};
}

function requestTrack() {
  const list = state.points || [];
  if (!list.length) return null;
  const H = 44, lengths = list.map((p) => p.duration), lo = Math.log10(Math.min(...lengths)), hi = Math.max(Math.log10(Math.max(...lengths)), lo + 0.3), y = (v) => H - 4 - (Math.log10(v) - lo) / (hi - lo) * (H - 8), middle = state.requestMedian, slow = (p) => p.slow;
  const dots = (of) => of.map((p) => `M${axis.x(p.end).toFixed(1)} ${y(p.duration).toFixed(1)}h0`).join(""), total = (state.bins || []).reduce((t, b) => t + (b.requests || 0), 0);
  const near = (t) => list.reduce((a, b) => (Math.abs(b.end - t) < Math.abs(a.end - t) ? b : a)), pick = (t) => { const close = list.filter((p) => Math.abs(axis.x(p.end) - axis.x(t)) < 5); return close.length ? close.reduce((a, b) => (b.duration > a.duration ? b : a)) : near(t); };
  return {key: "requests", label: "Requests", sub: middle ? `${count(total)} · median ${seconds(middle)}` : count(total), H, scale: [[0, seconds(10 ** hi)], [H - 13, seconds(10 ** lo)]], legend: list.some(slow) ? [["a request", "dots"], ["more than twice the median of its service", "slow"]] : [["a request", "dots"]],
    parts: [svg("path", {d: dots(list.filter((p) => !slow(p))), class: "dots"}), svg("path", {d: dots(list.filter(slow)), class: "dots slow"})],
    trace: (t) => pick(t).trace,
    says: (t) => { const p = pick(t); return Math.abs(axis.x(p.end) - axis.x(t)) > 40 ? [`no request at ${clock(t)}`] : [`request ${p.trace.slice(0, 8)}, ended ${clock(p.end)}`, `took ${seconds(p.duration)}${slow(p) ? ", more than twice the median of its service" : ""}`, "click: its trace"]; }};
}

const mib = (v) => (v === null || v === undefined ? null : v * 2 ** 20);
function memoryTrack() {
  const known = state.devices.filter((d) => d.memory.some((v) => v !== null));
  if (!known.length) return null;
  const H = 48, top = Math.max(1, ...known.map((d) => mib(d.limit) || 0), ...known.flatMap((d) => d.memory.map((v) => mib(v) || 0))), now = (d) => mib(d.memory.findLast((v) => v !== null));
  const worst = known.reduce((a, b) => (now(b) > now(a) ? b : a));
  return {key: "memory", label: "Memory in use", sub: `at most ${bytes(now(worst))}${worst.limit ? ` of ${bytes(mib(worst.limit))}` : ""}`, H, scale: [[0, bytes(top)], [H - 12, "0"]], legend: known.length > 7 || known.length < 2 ? [] : known.map((d, i) => ["memory of " + (d.name || d.id), "k" + i]),
    parts: known.map((d, i) => svg("path", {d: line(d.memory, (k) => axis.x((d.start + k * d.step) * 1000), (v) => H - 2 - mib(v) / top * (H - 4)), class: "level l" + i % 7})),
    says: (t) => [`memory in use, ${clock(t)}`, ...known.map((d) => [d, mib(d.memory[Math.floor((t / 1000 - d.start) / d.step)])]).filter(([, v]) => v !== null).sort((a, b) => b[1] - a[1]).slice(0, 8).map(([d, v]) => `${d.name || d.id}: ${bytes(v)}${d.limit ? `, ${percent(v / mib(d.limit))} of ${bytes(mib(d.limit))}` : ""}`)]};
}

// newestOf draws the newest spans of devices on an axis of their own, because an operation is far shorter than a second.
function newestOf(view) {
  const list = state.devices.filter((d) => (d.recent || []).length).slice(0, 8);
  if (!list.length) return [];
  const ends = list.map((d) => Math.max(...d.recent.map((r) => r.end))), length = Math.max(...list.map((d, i) => ends[i] - Math.min(...d.recent.map((r) => r.start))), 1e-6);
  return [details("newest", `The newest operations of each device: the last ${seconds(length / 1e3)}`, () => newestRows(view, list, ends, length))];
}
function newestRows(view, list, ends, length) {
  const {W} = trackWidth(view), names = new Map();
  const rows = list.map((d, i) => {
    const paths = new Map(), x = (t) => (t - ends[i] + length) / length * W;
    for (const r of d.recent) {
      const cls = colorOf(r.name), w = Math.max((r.end - r.start) / length * W, 0.8);
      paths.set(cls, (paths.get(cls) || "") + `M${x(r.start).toFixed(1)} 2h${w.toFixed(1)}v10h-${w.toFixed(1)}z`);
      names.set(r.name, cls);
    }
    const at = (row, px) => d.recent.findLast((r) => x(r.start) - 1 <= px - row.children[1].getBoundingClientRect().left && x(r.end) + 1 >= px - row.children[1].getBoundingClientRect().left);
    return el("div", {class: "track tight", tip: ({x: px, node: n}) => { const r = at(n, px); return r ? [r.name, `${seconds((r.end - r.start) / 1e3)}, ${seconds((ends[i] - r.end) / 1e3)} before the newest end`, "click: its trace"] : []; },
      onclick: (e) => { const r = at(e.currentTarget, e.clientX); if (r) openTrace(r.trace); }},
    el("div", {class: "name"}, el("bdi", {title: titleOf(d)}, short(d.name || d.id, 17))), chart(`The newest ${d.recent.length} operations of ${titleOf(d)}`, W, 14, ...[...paths].map(([cls, p]) => svg("path", {d: p, class: cls}))), "");
  });
  const most = [...names].slice(0, 12), more = names.size - most.length;
  return el("div", {}, el("div", {class: "track axisrow"}, el("div", {class: "name"}, ""), axisOf(W, (f) => (f === 1 ? "newest" : "−" + seconds((1 - f) * length / 1e3)))), ...rows, legend([...most, ...(more ? [[`and ${more} more`, "none"]] : [])]));
}

// tablesOf returns the numbers of the tracks as tables.
function tablesOf() {
  const out = [], devices = state.devices, of = (k) => (d) => meanOf(shownCells(d, k));
  if (devices.length) out.push(details("devices table", "Devices as a table", () => table("Devices over the time that is shown", [
    {title: "device", left: true, of: titleOf, cell: (d) => named(titleOf(d))}, {title: "covered", of: of("covered"), cell: (d) => has(of("covered")(d), percent)}, {title: "busy", of: of("busy"), cell: (d) => has(of("busy")(d), percent)},
    {title: "power", of: of("power"), cell: (d) => has(of("power")(d), (v) => sig(v) + " W")}, {title: "hottest", of: (d) => Math.max(0, ...shownCells(d, "temperature")), cell: (d) => or(Math.max(0, ...shownCells(d, "temperature")), (v) => sig(v) + " °C")},
    {title: "throttled", of: of("throttled"), cell: (d) => or(of("throttled")(d), percent)},
    {title: "memory", of: (d) => Math.max(0, ...shownCells(d, "memory")), cell: (d) => or(mib(Math.max(0, ...shownCells(d, "memory"))), bytes)}, {title: "of", of: (d) => d.limit, cell: (d) => or(mib(d.limit), bytes)}], devices, {key: "devices", most: 64})));
  const all = state.steps.filter((s) => s.duration > 0);
  if (all.length) {
    const loops = new Map(stepColumns().map((l) => [l.key, meanStep(l.columns.flatMap((c) => c.steps))])), middle = (s) => loops.get(loopOf(s)), ranked = all.some((s) => s.rank > 0), label = (s) => `${s.name} ${s.index}${ranked && s.rank >= 0 ? " r" + s.rank : ""}`;
    out.push(details("slow steps", "The longest steps", () => el("div", {}, table(`The longest steps${loops.size > 1 ? "" : `; the mean of ${plural(state.stepCount, "step")} is ${seconds([...loops.values()][0])}`}`, [
      {title: "step", left: true, of: label, cell: (s) => traceLink(s.trace, label(s))}, {title: "of", left: true, of: whose}, {title: "length", of: (s) => s.duration, cell: (s) => seconds(s.duration)}, {title: "× mean", help: "of its loop", of: (s) => s.duration / middle(s), cell: (s) => sig(s.duration / middle(s))},
      {title: "exposed", help: "exposed communication", of: (s) => s.exposed, cell: (s) => or(s.exposed, seconds)}, {title: "other", of: (s) => s.other, cell: (s) => or(s.other, seconds)}, {title: "items/s", of: (s) => s.items / s.duration, cell: (s) => (s.items ? sig(s.items / s.duration) : "")},
      {title: "MFU", of: (s) => s.mfu, cell: (s) => or(s.mfu, percent)}, {title: "J", of: (s) => s.energy, cell: (s) => or(s.energy, sig)}], state.longest || [], {key: "slow steps"}), state.stepsSince ? el("p", {class: "hint"}, `Steps before ${clock(state.stepsSince)} are no longer kept.`) : "")));
  }
  const ranks = rankRows();
  if (ranks.length > 1) out.push(details("ranks table", "Ranks as a table", () => table("Own time of ranks against the median", [{title: "rank", of: (r) => r.rank, zero: true}, {title: "of", left: true, of: (r) => r.whose}, {title: "steps", of: (r) => r.count}, {title: "mean", of: (r) => r.mean, cell: (r) => `× ${sig(r.mean)}`},
    {title: "later by", of: (r) => r.delay, cell: (r) => or(r.delay, seconds)}, {title: "worst", of: (r) => r.worst, cell: (r) => `× ${sig(r.worst)}`}], ranks, {key: "ranks", sort: ["mean", true], most: 64})));
  return out;
}
