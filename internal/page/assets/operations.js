// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// Which operation uses time and energy? The terminal's tree, and the roofline.

const keyOf = (o) => [o.service || "", o.name, o.type].join("\n");

// An operation has one color everywhere: of what it does, and a shade by its name.
const phaseColors = {forward: "k5", backward: "k0", optimizer: "k6", data: "k3", comm: "k1", "exposed communication": "k1", other: "k7", queue: "k7"};
const shades = ["k0", "k5", "k6"], shadeOf = new Map();
function colorOf(name, type) {
  if (phaseColors[name]) return phaseColors[name];
  const o = operationByName(name), kind = type || (o && o.type);
  if (kind === "step") return "k7";
  if (kind === "copy" || kind === "memset") return "k2";
  if (kind === "collective") return "k1";
  if (o && o.bound === "memory") return "k2";
  if (!shadeOf.has(name)) { if (shadeOf.size > 5000) shadeOf.clear(); shadeOf.set(name, shades[shadeOf.size % shades.length]); }
  return shadeOf.get(name);
}
let byName = {of: null, map: new Map()};
function operationByName(name) {
  if (byName.of !== state.operations) byName = {of: state.operations, map: new Map(state.operations.map((o) => [o.name, o]))};
  return byName.map.get(name);
}
const swatch = (cls) => svg("svg", {width: 9, height: 9, viewBox: "0 0 9 9", class: "swatch", "aria-hidden": "true"}, svg("rect", {width: 9, height: 9, rx: 2, class: cls}));

// inTree returns rows with their children below them, and sets their depth.
function inTree(rows, depth) {
  const known = new Set(rows.map(keyOf)), children = new Map(), out = [];
  for (const o of rows) {
    const up = o.inside && o.inside !== keyOf(o) && known.has(o.inside) ? o.inside : "";
    children.set(up, [...(children.get(up) || []), o]);
  }
  const seen = new Set(), add = (o, d) => {
    if (seen.has(o)) return;
    seen.add(o);
    depth.set(o, Math.min(d, 8));
    out.push(o);
    for (const c of children.get(keyOf(o)) || []) add(c, d + 1);
  };
  for (const o of children.get("") || []) add(o, 0);
  for (const o of rows) add(o, 0); // of a cycle
  return out;
}

function operations(view) {
  const all = state.operations;
  if (!all.length) return missing("operations", "No GPU spans in this time range.", live.pick ? "Choose another time, or reset." : "Point an OTLP exporter at this Collector (OTLP on 127.0.0.1:4317), or choose a longer time.");
  const pick = (o) => { live.chosen = live.chosen === keyOf(o) ? "" : keyOf(o); changed(); draw(); };
  const points = all.filter((o) => o.intensity && o.flopRate).map((o) => ({...o, key: keyOf(o), choose: () => pick(o), chosen: keyOf(o) === live.chosen, lines: [o.name, o.service || "", "GPU time " + seconds(o.time),
    `${scaled(o.flopRate, "FLOP/s")} at ${sig(o.intensity)} FLOPs per byte`, or(o.byteRate, (v) => scaled(v, "B/s")), or(o.roofline, (v) => percent(v) + " of the roof"), o.bound ? "bound by " + o.bound : ""]}));
  const energy = all.reduce((t, o) => t + (o.energy || 0), 0), time = all.reduce((t, o) => t + (o.inside ? 0 : o.time), 0), depth = new Map(), split = el("div", {class: "split wide-narrow"});
  const share = (o) => (energy ? (o.total || 0) / energy : o.time / Math.max(time, 1e-12)), own = (o) => (energy ? (o.energy || 0) / energy : 0);
  split.append(table(`${plural(all.length + (state.moreOperations || 0), "operation")}; J includes what ran inside, own J adds up to ${energy ? scaled(energy, "J") : "the total"}`, [
    {title: "operation", left: true, of: (o) => o.name, cell: (o) => node(el("span", {class: "tree in" + (depth.get(o) || 0)}), {}, [swatch(colorOf(o.name, o.type)), el("button", {class: "plain", "data-key": "op " + keyOf(o), "aria-pressed": String(keyOf(o) === live.chosen), title: `${o.name}\n${o.service || ""}`, onclick: () => pick(o)}, el("bdi", {}, o.name))])},
    {title: "service", left: true, wide: "wide", of: (o) => o.service, cell: (o) => named(o.service)},
    {title: "type", left: true, wide: "wider", of: (o) => [o.type, o.memory].filter(Boolean).join(", ")},
    {title: "count", wide: "mid", of: (o) => o.count, cell: (o) => count(o.count)},
    {title: "GPU time", of: (o) => o.time, cell: (o) => seconds(o.time)},
    {title: "J", help: "joules, with operations that ran inside it", of: (o) => o.total, cell: (o) => or(o.total, sig)},
    {title: "own J", help: "joules, without operations that ran inside it", of: (o) => o.energy, cell: (o) => or(o.energy, sig)},
    {title: "share", wide: "mid", help: energy ? "of the energy of all spans; solid: its own" : "of the GPU time of all operations", of: share, cell: (o) => el("span", {class: "shares"}, gauge(share(o), energy ? own(o) : share(o)), el("span", {}, percent(share(o))))},
    {title: "of roof", wide: "wide", of: (o) => o.roofline, cell: (o) => or(o.roofline, percent)},
    {title: "bound", wide: "wide", left: true, of: (o) => o.bound || "", cell: (o) => o.bound || ""},
    {title: "B/s", wide: "wide", of: (o) => o.byteRate, cell: (o) => or(o.byteRate, (v) => scaled(v, "B/s"))},
    {title: "FLOP/s", wide: "wide", of: (o) => o.flopRate, cell: (o) => or(o.flopRate, (v) => scaled(v, "FLOP/s"))},
    {title: "throttled", wide: "wider", help: "runs with a throttled clock", of: (o) => o.held, cell: (o) => or(o.held, count)},
    {title: "trace", wide: "wider", of: (o) => o.trace, cell: (o) => (o.trace ? traceLink(o.trace, "slowest") : "")},
  ], all, {key: "operations", sort: [energy ? "J" : "GPU time", true], filter: (o) => `${o.name} ${o.service || ""}`, arrange: (rows) => inTree(rows, depth), chosen: (o) => keyOf(o) === live.chosen, most: 40, more: state.moreOperations}));
  const right = el("div", {});
  right.append(points.length ? roofline({clientWidth: widthOf(view) > 1000 ? (widthOf(view) - 16) * 0.3 : widthOf(view)}, points, state.roofs)
    : empty("Nothing can be placed below a roof:", "no operation states both FLOPs and bytes. Declare gpuspan.Work{FLOPs, Read, Written}, or record shapes in PyTorch's profiler."));
  split.append(right);
  return [split];
}
// gauge draws a share, and the solid part of it.
function gauge(share, solid = share) {
  const part = (v, cls) => { const n = el("i", {class: cls}); n.style.width = (100 * Math.max(0, Math.min(1, v || 0))).toFixed(1) + "%"; return n; };
  return el("span", {class: "gauge", "aria-hidden": "true"}, solid < share ? part(share, "pale") : "", part(solid));
}
