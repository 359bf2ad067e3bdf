// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// The views of a report on profiles: what the analysis says of each device, and what ran when.

// Causes have the names of convert's text and of comparisons.
const causeNames = {dispatch: "idle: launch-bound", host: "idle: other work of the host", call: "idle: slow runtime calls", after_wait: "idle: work without a name after waits", latency: "idle: launch latency", peer: "idle: waiting for another rank", no_load: "idle: no load", capture: "idle: capture of graphs", warm_up: "idle: warm-up"};
const causeName = (c) => causeNames[c] || "idle: " + c;
const causeClass = {dispatch: "i0", host: "i1", loader: "i2", latency: "i3", call: "i4", allocation: "i5", synchronization: "i6", peer: "i7", dependency: "i8", unknown: "i9"};
const partNames = [["computing", "computing_ns", "w0"], ["exposed communication", "communication_exposed_ns", "w1"], ["exposed copies", "copying_exposed_ns", "w2"]];
const classNames = ["computing", "communicating", "copying", "setting memory", "launching", "waiting for the device"];
const classColours = ["w0", "w1", "w2", "i9", "k3", "k7"];
const profile = {zoom: null, at: null, tab: "kernels", device: "", streams: false};

const everyDevice = () => (state.profiles || []).flatMap((p) => p.devices.map((d) => ({p, d, name: deviceName(p, d)})));
function deviceName(p, d) {
  const many = state.profiles.length > 1, list = [`GPU ${d.ordinal}`];
  if (p.rank >= 0 && p.world !== 1) list.unshift(`rank ${p.rank}`);
  else if (many) list.unshift(p.name);
  return list.join(", ");
}
const partsOf = (x) => [...partNames.map(([n, k, c]) => [n, x.parts[k], c, nanos(x.parts[k])]), ...(x.idle || []).map((i) => [causeName(i.cause), i.time_ns, causeClass[i.cause] || "i9", nanos(i.time_ns)])].filter(([, v]) => v > 0);

// What would make it faster? One sentence, then a card for each finding; of many devices, for each kind.
function findings() {
  const list = everyDevice().flatMap(({p, d, name}) => (d.findings || []).map((v) => ({v, d, name: v.subject.startsWith("GPU") ? name : v.subject})));
  for (const p of state.profiles || []) if (p.host) list.push({v: p.host, d: {}, name: p.name});
  if (!list.length) return null;
  list.sort((a, b) => (b.v.weight_ns || 0) - (a.v.weight_ns || 0) || (b.v.gain_ns || 0) - (a.v.gain_ns || 0) || b.v.share - a.v.share);
  const one = new Set(list.map(({name}) => name)).size === 1, groups = new Map();
  for (const f of list) { const k = many() ? f.v.kind : f; groups.set(k, [...(groups.get(k) || []), f]); }
  const weight = (g) => g.reduce((t, {v}) => t + (v.weight_ns || v.gain_ns || 0), 0), sorted = [...groups.values()].sort((a, b) => weight(b) - weight(a));
  const cards = sorted.map((g, i) => findingCard(g, one, i)), some = cards.slice(0, 6), rest = cards.slice(6), more = everyDevice().reduce((t, {d}) => t + (d.moreFindings || 0), 0);
  const {v, d, name} = sorted[0][0], first = v.gain_ns > 0 ? `At most ${nanos(v.gain_ns)} (${percent(v.gain_ns / d.window_ns)} of the window${one ? "" : " of " + name}) can be saved: ${chain(v)}` : chain(v);
  return [(state.jobs || []).length ? null : el("p", {class: "answer"}, el("bdi", {}, sentence(inUnits(first)))), el("ol", {class: "cards"}, ...some), rest.length ? details("findings", plural(rest.length, "more finding"), el("ol", {class: "cards", start: 7}, ...rest)) : null,
    more ? el("p", {class: "hint"}, `${plural(more, "finding")} that save${more === 1 ? "s" : ""} less ${more === 1 ? "is" : "are"} not in this page.`) : null];
}
// chain returns the cause and its effects as a sentence.
const chain = (v) => v.chain.join(v.kind === "no_device" ? "; " : ", so ");
// findingCard draws findings of one kind: the largest, and a table of all.
function findingCard(g, one, i) {
  const {v, d, name} = g[0], devices = new Set(g.map((f) => f.name)).size, share = (f) => f.v.gain_ns / (f.d.window_ns || 1), gains = g.map((f) => f.v.gain_ns).filter((n) => n > 0);
  const all = g.length > 1 ? table(`Findings ${v.kind.replaceAll("_", " ")} by device`, [{title: "device", left: true, of: (f) => f.name}, {title: "saves", of: (f) => f.v.gain_ns, cell: (f) => or(f.v.gain_ns, nanos)}, {title: "of window", wide: "mid", of: share, cell: (f) => or(share(f), percent)},
    {title: "evidence", left: true, of: (f) => f.v.evidence || "", cell: (f) => named(f.v.evidence || "")}], g, {key: "findings of " + v.kind, most: 64}) : null;
  return card({kind: v.kind, key: v.kind + i, whose: many() ? `${devices} of ${plural(everyDevice().length, "device")}` : one ? "" : name, says: chain(v), gain: v.gain_ns, of: d.window_ns,
    saves: gains.length > 1 ? `saves at most ${nanos(Math.min(...gains))} – ${nanos(Math.max(...gains))} on each device` : "", remedy: v.remedy,
    evidence: evidence(v) || all ? el("div", {}, el("p", {}, g.length > 1 ? name + ": " : "", el("bdi", {}, sentence(inUnits(evidence(v))))), all) : ""});
}

// Where was the host, in profiles without a device?
function hostWork(view) {
  const list = (state.profiles || []).filter((p) => (p.hostOperators || []).length);
  if (!list.length) return null;
  return list.slice(0, 8).flatMap((p) => {
    const total = p.hostOperators.reduce((t, o) => t + o.self_ns, 0), steps = p.hostSteps || [];
    return [list.length > 1 ? el("h3", {}, named(p.name)) : null, steps.length ? columns(view, `Length of ${plural(steps.length, "step")} on the host`, steps.map((s) => ({label: s.name.replace(/^.*#/, "#"), total: s.time_ns / 1e9, parts: [["step", s.time_ns / 1e9, "k3"]], lines: [`${s.name}: ${nanos(s.time_ns)}`]})), [["a step on the host", "k3"]], {key: "host step " + p.name}) : null,
      table("Operators and named ranges on the host", [{title: "operator", left: true, of: (o) => o.name, cell: (o) => named(o.name)}, {title: "count", of: (o) => o.count, cell: (o) => count(o.count)}, {title: "own time", of: (o) => o.self_ns, cell: (o) => el("span", {class: "shares"}, nanos(o.self_ns), gauge(o.self_ns / total))},
        {title: "total", help: "with what it called", of: (o) => o.time_ns, cell: (o) => nanos(o.time_ns)}, {title: "mean", wide: "mid", of: (o) => o.time_ns / o.count, cell: (o) => nanos(o.time_ns / o.count)}], p.hostOperators, {key: "host " + p.name, sort: ["own time", true], filter: (o) => o.name, most: 20})];
  });
}

// Where did the time go?
function where(view) {
  const list = everyDevice();
  if (!list.length) return null;
  const names = new Map(), out = [];
  for (const {d} of list) for (const [n, , c] of partsOf(d)) names.set(n, c);
  if (many()) out.push(stripes(view, `Windows of ${plural(list.length, "device")}, on one scale`, list.map(({d, name}) => ({name, total: d.window_ns, parts: partsOf(d)}))));
  else for (const {d, name} of list) {
    out.push(el("figure", {}, el("figcaption", {}, el("strong", {}, name), el("span", {class: "dim"}, [d.model, `${nanos(d.window_ns)}, ${plural(d.kernels, "kernel")}`, d.steps ? plural(d.steps, "step") : ""].filter(Boolean).join(", "))),
      bar(view, `Window of ${name}: ${partsOf(d).map(([n, v]) => `${n} ${percent(v / d.window_ns)}`).join(", ")}`, d.window_ns, partsOf(d))));
  }
  out.push(legend([...names]));
  const all = list.flatMap(({d, name}) => partsOf(d).map(([part, v]) => ({name, part, v, share: v / d.window_ns})));
  out.push(details("where table", "as a table", table("Parts of each device's window; they add up to it", [{title: "device", left: true, of: (r) => r.name}, {title: "part", left: true, of: (r) => r.part},
    {title: "time", of: (r) => r.v, cell: (r) => nanos(r.v)}, {title: "share", of: (r) => r.share, cell: (r) => percent(r.share)}], all, {key: "where"})));
  const eff = list.filter(({d}) => d.efficiency && d.efficiency.time_ns > 0 && d.efficiency.flops + d.efficiency.bytes > 0);
  if (eff.length) out.push(el("ul", {class: "hint"}, ...eff.slice(0, 8).map(({d, name}) => el("li", {}, `${name}: operators with known work did ${[[d.efficiency.flops, "FLOP/s"], [d.efficiency.bytes, "B/s"]].filter(([n]) => n > 0).map(([n, unit]) => scaled(n / d.efficiency.time_ns * 1e9, unit)).join(" and ")} over ${percent(d.efficiency.coverage)} of the kernel time`
    + (d.efficiency.peak_share ? `, ${percent(d.efficiency.peak_share)} of the peak of ${d.efficiency.peak}` : "") + (d.efficiency.no_peak ? `. ${d.efficiency.no_peak}` : ""))), eff.length > 8 ? el("li", {}, `and of ${plural(eff.length - 8, "more device")}`) : null));
  return out;
}

// How do the steps differ?
function profileSteps(view) {
  const all = everyDevice().filter(({d}) => (d.by_step || []).length), out = many() && all.length ? smallSteps(view, all) : [];
  for (const {p, d, name} of many() && all.length ? [shown(all)] : all) {
    const names = new Map(), middle = median(d.by_step.map((s) => s.time_ns));
    const list = d.by_step.map((s) => {
      const parts = partsOf(s), sum = parts.reduce((t, [, v]) => t + v, 0);
      if (sum < s.time_ns * 0.999) parts.push(["outside of the record", s.time_ns - sum, "i9"]);
      for (const [n, , c] of parts) names.set(n, c);
      const at = {from: s.start_unix_ns / 1e6, to: (s.start_unix_ns + s.time_ns) / 1e6};
      return {label: s.name.replace(/^.*#/, "#"), total: s.time_ns / 1e9, parts: parts.map(([n, v, c]) => [n, v / 1e9, c]), mark: s.time_ns > 1.5 * middle && d.by_step.length > 2, open: p.timeline ? () => { profile.zoom = at; draw("timeline"); byId("timeline").scrollIntoView({block: "nearest"}); } : undefined,
        lines: [`${s.name}: ${nanos(s.time_ns)}`, ...parts.map(([n, v]) => `${n} ${nanos(v)} (${percent(v / s.time_ns)})`), p.timeline ? "click: the step in the timeline" : ""]};
    });
    out.push(el("h3", {}, name), columns(view, `Steps of ${name} by what the device did`, list, [...names], {key: "step " + name}));
    if (d.moreSteps) out.push(el("p", {class: "hint"}, `${plural(d.moreSteps, "more step")} not shown.`));
    out.push(details("steps " + name, "as a table", table(`Steps of ${name}`, [{title: "step", left: true, of: (s) => s.name, cell: (s) => named(s.name)}, {title: "length", of: (s) => s.time_ns, cell: (s) => nanos(s.time_ns)},
      ...partNames.map(([n, k]) => ({title: n, of: (s) => s.parts[k], cell: (s) => or(s.parts[k], nanos)})), {title: "idle", of: (s) => s.parts.idle_ns, cell: (s) => or(s.parts.idle_ns, nanos)},
      {title: "most idle for", left: true, of: (s) => { const c = ((s.idle || [])[0] || {}).cause; return c ? causeName(c).replace("idle: ", "") : ""; }}], d.by_step, {key: "steps " + name, most: 20})));
  }
  return out.length ? out : null;
}

// What ran when?
function timeline(view) {
  const rows = [], lines = (state.profiles || []).filter((p) => p.timeline);
  if (!lines.length) return null;
  const groups = []; // profiles whose times overlap share an axis
  for (const p of lines.sort((a, b) => a.timeline.start - b.timeline.start)) {
    const t = p.timeline, end = t.start + t.count * t.length, g = groups[groups.length - 1];
    if (g && t.start < g.to) { g.list.push(p); g.to = Math.max(g.to, end); } else groups.push({from: t.start, to: end, list: [p]});
  }
  if (profile.zoom && !groups.some((g) => profile.zoom.from < g.to && profile.zoom.to > g.from)) profile.zoom = null;
  rows.push(el("p", {class: "hint"}, "Drag to zoom. Keys: left and right move, + and - zoom, up and down choose a row, Escape shows all. ", profile.zoom ? el("button", {"data-key": "zoom out", onclick: () => { profile.zoom = null; draw("timeline"); }}, "show all") : ""));
  const merged = many() && !profile.streams;
  if (many()) rows.push(el("button", {"data-key": "streams", "aria-pressed": String(!!profile.streams), onclick: () => { profile.streams = !profile.streams; draw("timeline"); }}, "one row for each stream"));
  const hidden = groups.slice(8).reduce((t, g) => t + g.list.length, 0) + groups.slice(0, 8).reduce((t, g) => t + (merged ? Math.max(0, g.list.length - 64) : Math.max(0, g.list.reduce((n, p) => n + p.timeline.rows.length, 0) - 64)), 0);
  for (const g of groups.slice(0, 8)) rows.push(tracks(view, g, merged));
  if (hidden) rows.push(el("p", {class: "hint"}, `${plural(hidden, "more row")} in the table.`));
  const drawn = new Set(lines.flatMap((p) => p.timeline.rows.filter((r) => !merged || !r.host).flatMap((r) => r.cells.filter((_, i) => i % 4 === 2))));
  rows.push(legend(classNames.map((n, i) => [n, classColours[i], i]).filter(([, , i]) => drawn.has(i)).map(([n, c]) => [n, c])));
  const more = lines.reduce((t, p) => t + (p.timeline.more || 0), 0);
  if (more) rows.push(el("p", {class: "hint"}, `${plural(more, "stream or activity", "streams and activities")} beyond the limit.`));
  const all = lines.flatMap((p) => p.timeline.rows.map((r) => ({name: trackName(p, r), r, share: r.busy * 1e3 / Math.max(1e-9, p.timeline.count * p.timeline.length)})));
  rows.push(details("streams table", "as a table", table("Streams, and threads that launch work", [{title: "stream", left: true, of: (x) => x.name}, {title: "activities", of: (x) => x.r.count, cell: (x) => count(x.r.count)}, {title: "busy", of: (x) => x.r.busy, cell: (x) => seconds(x.r.busy)},
    {title: "share", of: (x) => x.share, cell: (x) => percent(Math.min(1, x.share))}], all, {key: "streams", sort: ["busy", true]})));
  return rows;
}
const trackName = (p, r) => (r.host ? [p.rank >= 0 && p.world !== 1 ? `rank ${p.rank}` : state.profiles.length > 1 ? p.name : "", `thread ${r.stream}`].filter(Boolean).join(", ") : r.stream >= 0 ? `${deviceName(p, {ordinal: Math.max(0, r.device)})}, stream ${r.stream}` : deviceName(p, {ordinal: Math.max(0, r.device)}));
// briefly is the same for narrow windows: rank, device, stream.
const briefly = (p, r) => r.host ? `t${r.stream % 10000}` : [p.rank >= 0 && p.world !== 1 && state.profiles.length > 1 ? "r" + p.rank : "", everyDevice().length > 1 && state.profiles.length === 1 ? "g" + r.device : "", r.stream >= 0 ? "s" + r.stream : ""].filter(Boolean).join(" ") || "GPU " + r.device;
function tracks(view, g, merged) {
  g.list.sort((a, b) => a.rank - b.rank || a.name.localeCompare(b.name));
  const W = widthOf(view), L = W > 600 ? 150 : 64, T = 18, list = (merged ? g.list.map(rowOf) : g.list.flatMap((p) => p.timeline.rows.map((r) => ({p, r, name: plain(trackName(p, r)), brief: briefly(p, r), cells: expand(p.timeline, r)})))).slice(0, 64), rowH = list.length > 24 ? 13 : list.length > 8 ? 22 : 36;
  const zoom = profile.zoom && profile.zoom.from < g.to && profile.zoom.to > g.from ? profile.zoom : null, from = zoom ? Math.max(g.from, zoom.from) : g.from, to = zoom ? Math.min(g.to, zoom.to) : g.to;
  const H = T + list.length * rowH + 2, ratio = window.devicePixelRatio || 1, canvas = el("canvas", {width: W * ratio, height: H * ratio, class: "tracks", tabindex: 0, role: "application", "data-key": "tracks " + g.from,
    "aria-label": `What ran on ${plural(list.length, "stream")} over ${seconds((g.to - g.from) / 1e3)}; the table below says how busy each was`});
  canvas.style.width = W + "px";
  canvas.style.height = H + "px";
  const c = canvas.getContext("2d"), css = getComputedStyle(document.documentElement), colour = (n) => css.getPropertyValue(n).trim();
  const colours = classColours.map((n) => colour("--" + n.replace("k", "c"))), x = (t) => L + (t - from) / (to - from) * (W - L), timeAt = (px) => from + (px - L) / (W - L) * (to - from);
  const paint = (pick) => {
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, W, H);
    c.font = "11px system-ui, sans-serif";
    c.strokeStyle = colour("--line");
    c.textAlign = "center";
    for (const t of ticks((to - from) / 1e3, Math.max(2, Math.floor((W - L) / 120)))) {
      const px = x(from + t * 1e3);
      if (px > W) continue;
      c.fillStyle = colour("--dim");
      c.fillText(seconds(t), Math.min(px, W - 20), 11);
      c.beginPath(); c.moveTo(px, T - 3); c.lineTo(px, H); c.stroke();
    }
    list.forEach((row, i) => {
      const y = T + i * rowH, t = row.p.timeline, w = t.length / (to - from) * (W - L);
      if (profile.at && profile.at.group === g.from && profile.at.row === i) { c.fillStyle = colour("--line"); c.fillRect(0, y, W, rowH); }
      // Cells are summed into their columns of pixels, so that many narrow ones stay visible.
      const columns = new Map();
      for (const [at, share, cls] of row.cells) {
        const left = x(t.start + at * t.length), last = Math.min(W, left + w);
        for (let px = Math.max(L, Math.floor(left)); px < last; px++) {
          const k = columns.get(px) || [0, 0, 0, 0, 0, 0];
          k[cls] += share * Math.max(0, Math.min(1, Math.min(last, px + 1) - Math.max(left, px)));
          columns.set(px, k);
        }
      }
      for (const [px, k] of columns) {
        const sum = k.reduce((t, v) => t + v, 0);
        let y0 = y + rowH - 3;
        k.forEach((v, cls) => {
          if (!v) return;
          const h = Math.max(2, (rowH - 5) * Math.min(1000, sum) / 1000) * v / sum;
          c.fillStyle = colours[cls];
          c.fillRect(px, y0 -= h, 1, h);
        });
      }
      c.fillStyle = colour("--fg");
      c.textAlign = "left";
      c.fillText(W > 600 ? short(row.name, 24) : row.brief, 2, y + Math.min(14, rowH - 2), L - 6);
    });
    if (profile.at && profile.at.group === g.from) { c.strokeStyle = colour("--fg"); const px = x(profile.at.time); c.beginPath(); c.moveTo(px, T - 3); c.lineTo(px, H); c.stroke(); }
    if (pick) { c.fillStyle = colour("--accent"); c.globalAlpha = 0.25; c.fillRect(Math.min(...pick), 0, Math.abs(pick[1] - pick[0]), H); c.globalAlpha = 1; }
  };
  paint();
  const says = (px, py) => {
    const row = list[Math.floor((py - T) / rowH)];
    if (!row || px < L) return [];
    const t = row.p.timeline, at = Math.floor((timeAt(px) - t.start) / t.length), cell = row.cells.find(([i]) => i === at), when = `at ${seconds((timeAt(px) - g.from) / 1e3)}`;
    return cell ? [row.name, cell[3] >= 0 ? (t.names || state.names)[cell[3]] : "", `${classNames[cell[2]]}, ${percent(cell[1] / 1000)} of ${seconds(t.length / 1e3)} ${when}`] : [row.name, "nothing ran " + when];
  };
  tips.set(canvas, ({x: px, y: py}) => { const b = canvas.getBoundingClientRect(); return says(px - b.left, py - b.top); });
  canvas.addEventListener("pointerdown", (e) => {
    const b = canvas.getBoundingClientRect(), start = Math.max(L, e.clientX - b.left);
    canvas.setPointerCapture(e.pointerId);
    let end = start;
    const move = (m) => { end = Math.min(W, Math.max(L, m.clientX - b.left)); paint([start, end]); };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", () => {
      canvas.removeEventListener("pointermove", move);
      if (Math.abs(end - start) < 4) return paint();
      profile.zoom = {from: timeAt(Math.min(start, end)), to: timeAt(Math.max(start, end))};
      draw("timeline");
    }, {once: true});
  });
  canvas.addEventListener("keydown", (e) => {
    const mid = (from + to) / 2, half = (to - from) / 2, near = profile.at && profile.at.group === g.from ? profile.at : {group: g.from, row: 0, time: mid};
    const zoomTo = (f, h) => { profile.zoom = {from: Math.max(g.from, f - h), to: Math.min(g.to, f + h)}; };
    const step = (to - from) / 60;
    if (e.key === "+" || e.key === "=") zoomTo(near.time, half / 2);
    else if (e.key === "-") zoomTo(near.time, half * 2);
    else if (e.key === "ArrowLeft") near.time = Math.max(from, near.time - step);
    else if (e.key === "ArrowRight") near.time = Math.min(to, near.time + step);
    else if (e.key === "ArrowUp") near.row = Math.max(0, near.row - 1);
    else if (e.key === "ArrowDown") near.row = Math.min(list.length - 1, near.row + 1);
    else return;
    e.preventDefault();
    profile.at = near;
    draw("timeline");
    const again = document.activeElement, b = again.getBoundingClientRect();
    if (tips.has(again)) showTip(again, b.left + x(near.time), b.top + T + near.row * rowH + rowH / 2);
  });
  return canvas;
}
// expand gives cells their own index, class and name.
function expand(t, r) {
  const out = [];
  for (let i = 0, at = 0; i < r.cells.length; i += 4) out.push([at += r.cells[i], r.cells[i + 1], r.cells[i + 2], r.cells[i + 3]]);
  return out;
}

// Which operator is memory bound?
function profileRoofline(view) {
  const single = everyDevice().flatMap(({d, name}) => (d.operators || []).filter((o) => o.flops_per_second && o.bytes_per_second).map((o) => ({o, d, name})));
  const all = many() ? together(single.map(({o, d, name}) => ({...o, of: d, device: name})), (o) => `${o.name} ${o.shapes || ""} ${o.of.model || ""}`).map((o) => ({o, d: o.of, name: o.device})) : single;
  if (!all.length) {
    if (!everyDevice().some(({d}) => (d.operators || []).length)) return null;
    return [empty("Nothing can be placed below a roof:", "no operator has both FLOPs and bytes. Record shapes (record_shapes=True of PyTorch's profiler), or declare work in NVTX payloads.")];
  }
  const roofs = new Map();
  for (const {d} of all) if (d.roof) roofs.set(d.roof.model, d.roof);
  const points = all.sort((a, b) => b.o.time_ns - a.o.time_ns).slice(0, 400).map(({o, d, name}, i) => ({key: String(i), name: o.name, intensity: o.flops / o.bytes, flopRate: o.flops_per_second, time: o.time_ns / 1e9, bound: o.bound, precision: o.precision, model: d.roof ? d.roof.model : "",
    chosen: profile.chosen === o.name, choose: () => { profile.chosen = profile.chosen === o.name ? "" : o.name; profile.tab = "operators"; draw("profileRoofline", "lists"); }, lines: [o.name, o.shapes ? short(o.shapes, 90) : "", everyDevice().length > 1 ? name : "",
      `${plural(o.kernels, "kernel")}, ${nanos(o.time_ns)}`, `${scaled(o.flops_per_second, "FLOP/s")} ${o.precision || ""} at ${sig(o.flops / o.bytes)} FLOPs per byte`, scaled(o.bytes_per_second, "B/s"), o.peak_share ? `${percent(o.peak_share)} of the peak, bound by ${o.bound}` : ""]}));
  const low = all.filter(({o}) => o.peak_share > 0).map(({o, d}) => ({o, lost: o.time_ns * (1 - Math.min(1, o.peak_share)), share: o.time_ns / d.window_ns})).sort((a, b) => b.lost - a.lost);
  return [el("div", {class: "split"}, roofline({clientWidth: widthOf(view) > 900 ? widthOf(view) * 0.52 : widthOf(view)}, points, [...roofs.values()]), low.length ? table("Furthest from their roof: time above what the work takes at the peak", [
    {title: "operator", left: true, of: ({o}) => o.name, cell: ({o}) => named(o.name)}, {title: "time", of: ({o}) => o.time_ns, cell: ({o}) => nanos(o.time_ns)}, {title: "of peak", of: ({o}) => o.peak_share, cell: ({o}) => percent(o.peak_share)},
    {title: "bound", left: true, of: ({o}) => o.bound}, {title: "above peak", of: ({lost}) => lost, cell: ({lost}) => nanos(lost)}], low, {key: "low", sort: ["above peak", true], most: 12}) : null)];
}

// What takes the time?
function lists() {
  const list = everyDevice();
  if (!list.some(({d}) => (d.by_kernel || []).length || (d.operators || []).length)) return null;
  const one = list.length === 1, device = one ? [] : [{title: "device", left: true, of: (r) => r.device}];
  const flat = (key) => {
    const rows = list.flatMap(({d, name}) => (d[key] || []).map((r) => ({...r, device: name, share: r.time_ns / d.window_ns})));
    return many() ? together(rows, (r) => `${r.name} ${r.shapes || ""}`) : rows;
  };
  const time = [{title: "time", of: (r) => r.time_ns, cell: (r) => el("span", {}, nanos(r.time_ns), gauge(r.share))}, {title: "of window", of: (r) => r.share, cell: (r) => percent(r.share)}];
  const rates = [{title: "FLOP/s", of: (r) => r.flops_per_second, cell: (r) => or(r.flops_per_second, (v) => scaled(v, "FLOP/s"))}, {title: "B/s", of: (r) => r.bytes_per_second, cell: (r) => or(r.bytes_per_second, (v) => scaled(v, "B/s"))},
    {title: "of peak", of: (r) => r.peak_share, cell: (r) => or(r.peak_share, percent)}, {title: "bound", left: true, of: (r) => r.bound || "", cell: (r) => r.bound || ""}];
  const more = (key) => list.reduce((t, {d}) => t + (d[key] || 0), 0);
  const tabs = {
    kernels: () => table("Kernels by name", [{title: "kernel", left: true, of: (r) => r.name, cell: (r) => named(r.name)}, ...device, {title: "count", of: (r) => r.count, cell: (r) => count(r.count)}, ...time,
      {title: "mean", of: (r) => r.time_ns / r.count, cell: (r) => nanos(r.time_ns / r.count)}, {title: "alone", help: "time in which no other kernel ran", of: (r) => r.alone_ns, cell: (r) => nanos(r.alone_ns)}, ...launchColumns, ...rates],
    flat("by_kernel"), {key: "kernels", sort: ["time", true], filter: (r) => r.name, most: 25, more: more("moreKernels")}),
    operators: () => table("Operators by name and shapes; their time is the time of the kernels they launched", [{title: "operator", left: true, of: (r) => r.name, cell: (r) => named(r.name)}, {title: "shapes", left: true, of: (r) => r.shapes || "", cell: (r) => named(r.shapes || "")}, ...device,
      {title: "kernels", of: (r) => r.kernels, cell: (r) => count(r.kernels)}, ...time, ...rates, {title: "longest kernel", left: true, of: (r) => r.kernel, cell: (r) => named(r.kernel)}],
    flat("operators"), {key: "operators", sort: ["time", true], filter: (r) => `${r.name} ${r.shapes || ""} ${r.kernel}`, most: 25, more: more("moreOperators"), chosen: (r) => r.name === profile.chosen}),
  };
  if (!flat("operators").length) profile.tab = "kernels";
  return [el("div", {class: "tabs", role: "group", "aria-label": "Kernels or operators"}, ...Object.keys(tabs).filter((k) => flat(k === "kernels" ? "by_kernel" : k).length).map((k) => el("button", {"data-key": "tab " + k, "aria-pressed": String(profile.tab === k), onclick: () => { profile.tab = k; draw("lists"); }}, k))), tabs[profile.tab]()];
}

// Is communication hidden behind computation?
function communication(view) {
  const list = everyDevice().filter(({d}) => d.parts.communication_exposed_ns + d.parts.communication_hidden_ns > 0);
  if (!list.length) return null;
  const each = list.flatMap(({d, name}) => (d.collectives || []).map((c) => ({...c, device: name}))), rows = many() ? together(each, (c) => c.name) : each;
  const small = many() ? [stripes(view, `Communication of ${plural(list.length, "device")}, on one scale`, list.map(({d, name}) => ({name, total: d.parts.communication_exposed_ns + d.parts.communication_hidden_ns, parts: [["hidden", d.parts.communication_hidden_ns, "w0", nanos(d.parts.communication_hidden_ns)], ["exposed", d.parts.communication_exposed_ns, "w1", nanos(d.parts.communication_exposed_ns)]]}))), legend([["hidden", "w0"], ["exposed", "w1"]])] : [];
  return [...small, ...(many() ? [] : list).map(({d, name}) => {
    const p = d.parts, total = p.communication_exposed_ns + p.communication_hidden_ns;
    return el("figure", {}, el("figcaption", {}, el("strong", {}, name), el("span", {class: "dim"}, `${nanos(total)} of communication, ${percent(p.communication_hidden_ns / total)} of it hidden, ${percent(p.communication_exposed_ns / d.window_ns)} of the window exposed`)),
      bar(view, `Communication of ${name}`, total, [["hidden", p.communication_hidden_ns, "w0", nanos(p.communication_hidden_ns)], ["exposed", p.communication_exposed_ns, "w1", nanos(p.communication_exposed_ns)]], 18));
  }), table("Collectives: waiting and moving are parts of their exposed time", [{title: "collective", left: true, of: (c) => c.name, cell: (c) => named(c.name)}, ...(list.length > 1 ? [{title: "device", left: true, of: (c) => c.device}] : []), {title: "count", of: (c) => c.count}, {title: "time", of: (c) => c.time_ns, cell: (c) => nanos(c.time_ns)},
    {title: "waiting for ranks", of: (c) => c.waiting_ns, cell: (c) => nanos(c.waiting_ns)}, {title: "moving bytes", of: (c) => c.moving_ns, cell: (c) => nanos(c.moving_ns)}], rows, {key: "collectives", sort: ["time", true], most: 15, more: list.reduce((t, {d}) => t + (d.moreCollectives || 0), 0)})];
}

// Which copies delay the device?
function copies() {
  const each = everyDevice().flatMap(({d, name}) => (d.copies || []).map((c) => ({...c, device: name, share: c.exposed_ns / d.window_ns})));
  if (!each.length) return null;
  const label = (c) => [(c.direction || "memset").replaceAll("_", " "), c.memory].filter(Boolean).join(", ");
  const windows = everyDevice().reduce((t, {d}) => t + d.window_ns, 0), rows = many() ? together(each, label).map((c) => ({...c, share: c.exposed_ns / windows})) : each;
  return [table("Copies and memsets", [{title: "kind", left: true, of: label}, ...(everyDevice().length > 1 ? [{title: "device", left: true, of: (c) => c.device}] : []), {title: "count", of: (c) => c.count, cell: (c) => count(c.count)}, {title: "bytes", of: (c) => c.bytes, cell: (c) => or(c.bytes, (v) => scaled(v, "B"))},
    {title: "time", of: (c) => c.time_ns, cell: (c) => nanos(c.time_ns)}, {title: "rate", of: (c) => c.bytes / c.time_ns, cell: (c) => or(c.bytes / c.time_ns, (v) => scaled(v * 1e9, "B/s"))}, {title: "exposed", of: (c) => c.exposed_ns, cell: (c) => nanos(c.exposed_ns)}, {title: "of window", of: (c) => c.share, cell: (c) => percent(c.share)}], rows, {key: "copies"})];
}

// How much memory is allocated over time?
function profileMemory(view) {
  const all = everyDevice().filter(({d}) => (d.memory || []).length > 1), out = many() && all.length ? smallLevels(view, all) : [];
  for (const {d, name} of many() && all.length ? [shown(all)] : all) {
    const points = d.memory.map((m) => [m.at_unix_ns / 1e6, m.bytes]), high = points.reduce((a, b) => (b[1] > a[1] ? b : a));
    out.push(el("h3", {}, name), el("p", {class: "hint"}, `At most ${bytes(high[1])}, ${seconds((high[0] - points[0][0]) / 1e3)} after the first allocation; ${bytes(points[0][1])} at first, ${bytes(points[points.length - 1][1])} at last. What the framework's allocator had handed out, not what the device had in use.`),
      levels(view, `Allocated memory of ${name}`, [{name, points}], points[0][0], points[points.length - 1][0]));
  }
  return out.length ? out : null;
}

// Which rank delays the others?
function profileRanks(view) {
  const list = everyDevice().filter(({p}) => p.rank >= 0 && p.world !== 1);
  if (list.length < 2 && !(state.jobs || []).length) return null;
  const parts = list.length > 1 ? table("Ranks", [{title: "rank", of: ({p}) => p.rank, zero: true}, {title: "device", left: true, of: ({d}) => `GPU ${d.ordinal} ${d.model || ""}`}, {title: "window", of: ({d}) => d.window_ns, cell: ({d}) => nanos(d.window_ns)},
    ...partNames.map(([n, k]) => ({title: n, of: ({d}) => d.parts[k], cell: ({d}) => el("span", {}, nanos(d.parts[k]), gauge(d.parts[k] / d.window_ns))})), {title: "idle", of: ({d}) => d.parts.idle_ns, cell: ({d}) => el("span", {}, nanos(d.parts.idle_ns), gauge(d.parts.idle_ns / d.window_ns))},
    {title: "file", left: true, of: ({p}) => p.name, cell: ({p}) => named(p.name)}], list, {key: "profile ranks", sort: ["rank", false], most: 64}) : null;
  const jobs = (state.jobs || []).flatMap(job);
  return [...jobs, parts && jobs.length ? details("ranks", "parts of each rank's window", parts) : parts];
}

// job returns the combined result of a job's ranks: a sentence, the late rank, and a row for each rank.
function job(j, i) {
  const late = new Map((j.late || []).map((l) => [l.rank, l])), most = Math.max(1, ...j.ranks.map((r) => r.held_up_ns));
  const at = (r) => (late.get(r.rank)?.at || []).map((a) => `${a.count} × ${a.collective}`).join(", ");
  const more = (r, k) => or(late.get(r.rank)?.[k], nanos);
  const matched = j.ranks.some((r) => r.collectives > 0);
  let [first, ...rest] = inUnits(j.says).split(/(?<=\.) (?=[A-Z])/);
  if (/not judged/.test(first) && rest.length) [first, ...rest] = [rest[0], first, ...rest.slice(1)];
  const worst = Math.max(...j.ranks.map((r) => r.held_up_ns));
  return [el("p", {class: "answer"}, el("bdi", {}, sentence(first))), (j.late || []).length && j.late[0].each_ns ? el("p", {}, `Each of the other ranks waits ${nanos(j.late[0].each_ns)} for rank ${j.late[0].rank}.`) : null, rest.length ? el("p", {}, el("bdi", {}, rest.join(" "))) : null, table("Ranks of the job: who waits for whom", [{title: "rank", of: (r) => r.rank, zero: true}, {title: "step", of: (r) => r.step_ns, cell: (r) => or(r.step_ns, nanos)}, {title: "computing", wide: "mid", of: (r) => r.computing_ns, cell: (r) => nanos(r.computing_ns)}, {title: "communicating", wide: "mid", of: (r) => r.communicating_ns, cell: (r) => nanos(r.communicating_ns)},
    ...(matched ? [{title: "came last at", of: (r) => r.last, cell: (r) => `${r.last} of ${r.collectives}`}, {title: "waited", of: (r) => r.waited_ns, cell: (r) => nanos(r.waited_ns)}, {title: "delayed others by", of: (r) => r.held_up_ns, cell: (r) => el("span", {}, nanos(r.held_up_ns), gauge(r.held_up_ns / most))}, {title: "late at", left: true, of: at, cell: (r) => el("bdi", {class: "name", title: at(r)}, short(at(r), 36))}] : []),
    {title: "more computing", of: (r) => late.get(r.rank)?.more_computing_ns, cell: (r) => more(r, "more_computing_ns")}, {title: "more idle", of: (r) => late.get(r.rank)?.more_idle_ns, cell: (r) => more(r, "more_idle_ns")}, {title: "host then in", left: true, of: (r) => late.get(r.rank)?.in || "", cell: (r) => named(late.get(r.rank)?.in || "")}], j.ranks, {key: "job " + i, sort: ["rank", false], most: 64, chosen: (r) => worst > 0 && r.held_up_ns === worst})];
}

// What changed?
function comparison(view) {
  const c = state.comparison;
  if (!c) return null;
  const unit = c.per_step ? "a step" : "the window", delta = c.after_ns - c.before_ns, signed = (v) => (v > 0 ? "+" : v < 0 ? "−" : "") + nanos(Math.abs(v));
  const W = widthOf(view), shown = c.parts.slice(0, 12), less = Math.max(0, ...shown.map((p) => p.before_ns - p.after_ns)), greater = Math.max(0, ...shown.map((p) => p.after_ns - p.before_ns)), L = Math.min(300, W * 0.42), room = (W - L - 140) / Math.max(1, less + greater), mid = L + 70 + less * room, H = shown.length * 24 + 4;
  const parts = [svg("line", {x1: mid, x2: mid, y1: 0, y2: H, class: "axis"})];
  shown.forEach((p, i) => {
    const d = p.after_ns - p.before_ns, w = Math.abs(d) * room, y = i * 24 + 3;
    parts.push(svg("rect", {x: d < 0 ? mid - w : mid, y, width: Math.max(1, w), height: 18, class: d < 0 ? "better" : "worse", tip: [p.name, `${nanos(p.before_ns)} before, ${nanos(p.after_ns)} after`, signed(d)]}),
      text(L - 8, y + 13, short(p.name, Math.floor(L / 6.6)), "end", "label"), text(d < 0 ? mid - w - 5 : mid + w + 5, y + 13, signed(d), d < 0 ? "end" : "start", "label"));
  });
  const change = (caption, key, list, more) => table(caption, [{title: key, left: true, of: (r) => r.name, cell: (r) => named(r.name)}, {title: "change", of: (r) => Math.abs(r.after_ns - r.before_ns), cell: (r) => el("span", {class: r.after_ns < r.before_ns ? "less" : "greater"}, signed(r.after_ns - r.before_ns))},
    {title: "before", of: (r) => r.before_ns, cell: (r) => nanos(r.before_ns)}, {title: "after", of: (r) => r.after_ns, cell: (r) => nanos(r.after_ns)},
    {title: "more or slower work", left: true, of: (r) => r.reason || ""}, {title: "before → after", left: true, of: (r) => r.how || "", cell: (r) => named(r.how || "")}], list, {key: "change " + key, sort: ["change", true], filter: (r) => `${r.name} ${r.reason || ""} ${r.how || ""}`, most: 20, more});
  const by = c.by_work || {}, split = [["amount of work", by.work_ns], ["speed of the same work", by.rate_ns], ["operators of only one profile", by.one_side_ns], ["operators with unknown work", by.unknown_ns]].filter(([, v]) => Math.abs(v || 0) >= 1000);
  return [el("p", {class: "headline"}, el("strong", {}, `${unit === "a step" ? "A step" : "The window"} is ${nanos(Math.abs(delta))} (${percent(Math.abs(delta) / Math.max(1, c.before_ns))}) ${delta < 0 ? "shorter" : "longer"}`), `: ${nanos(c.before_ns)} in `, named(c.names[0]), `, ${nanos(c.after_ns)} in `, named(c.names[1]), "."),
    split.length && Math.max(Math.abs(by.work_ns || 0), Math.abs(by.rate_ns || 0)) >= 1000 ? el("p", {}, `Operators: ${split.map(([n, v]) => `${n} ${signed(v)}`).join(", ")}.`) : null,
    el("figure", {}, chart(`Change of each part of ${unit}`, W, H, ...parts), legend([["less time", "better"], ["more time", "worse"]])),
    change(`Operators, time of their kernels in ${unit}`, "operator", c.operators || [], c.moreOperators), change(`Kernels, time in ${unit}`, "kernel", c.kernels || [], c.moreKernels)];
}

// What was read?
function sources() {
  if (!(state.profiles || []).length) return null;
  const dropped = state.health.profilesDropped;
  return [table("Profiles", [{title: "file", left: true, of: (p) => p.name, cell: (p) => named(p.name)}, {title: "rank", of: (p) => (p.rank >= 0 ? p.rank : undefined), zero: true, cell: (p) => (p.rank >= 0 ? `${p.rank}${p.world ? " of " + p.world : ""}` : "")}, {title: "events", help: "activities and ranges that were read; spans.json has fewer spans, at the level of detail of the conversion", of: (p) => p.spans, cell: (p) => count(p.spans)}, {title: "devices", of: (p) => p.devices.length}], state.profiles, {key: "sources"}),
    ...state.profiles.filter((p) => (p.remarks || []).length).map((p) => el("ul", {class: "hint"}, ...p.remarks.slice(0, 20).map((r) => el("li", {}, named(p.name), ": ", el("bdi", {}, r))))), dropped ? el("p", {class: "hint"}, `${plural(dropped, "more profile")} found no room in this page.`) : null];
}
