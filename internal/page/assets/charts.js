// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// Charts that the live page and reports share.

const boundClass = (b) => ({compute: "k0", memory: "k2", launch: "k3", latency: "k5", link: "k1", bus: "k2"})[b] || "k7";

// ticks returns about n round numbers from 0 to at least most.
function ticks(most, n) {
  const raw = most / n, unit = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw) || unit * 10;
  const list = [];
  for (let v = 0; v < most + step * 0.999; v += step) list.push(v);
  return list;
}

// roofline draws operations {name, intensity, flopRate, time, bound, lines, choose, chosen, precision, model} below their roofs.
function roofline(view, points, roofs) {
  const W = Math.min(widthOf(view), 720), H = Math.max(280, Math.min(380, W * 0.62)), L = 78, B = 36, T = 14, R = 24, lg = Math.log10;
  const lines = new Map(); // roofs of one height are one line
  for (const r of roofs) {
    const wanted = new Set(points.filter((p) => p.model === r.model || !p.model).map((p) => p.precision).filter(Boolean));
    for (const [p, f] of Object.entries(r.flops)) {
      if (!wanted.has(p)) continue;
      const k = r.model + " " + f, l = lines.get(k) || {model: r.model, flops: f, bandwidth: r.bandwidth, precisions: []};
      l.precisions.push(p);
      lines.set(k, l);
    }
  }
  const list = [...lines.values()].sort((a, b) => b.flops - a.flops);
  const xs = points.map((p) => p.intensity).concat(list.map((r) => r.flops / r.bandwidth)), ys = points.map((p) => p.flopRate).concat(list.map((r) => r.flops));
  const x0 = Math.floor(lg(Math.min(...xs)) - 0.2), x1 = Math.ceil(lg(Math.max(...xs)) + 0.3), y0 = Math.floor(lg(Math.min(...ys)) - 0.1), y1 = Math.ceil(lg(Math.max(...ys)) + 0.15);
  const x = (v) => L + (lg(v) - x0) / (x1 - x0) * (W - L - R), y = (v) => H - B - (lg(v) - y0) / (y1 - y0) * (H - B - T);
  const parts = [], taken = [], most = Math.max(...points.map((p) => p.time), 1e-12), radius = (p) => 3.5 + 13 * Math.sqrt(p.time / most);
  // reserve reports whether there is space for a label, and reserves it.
  const reserve = (bx, by, w, of) => {
    if (bx < L || bx + w > W - 2 || by < T || taken.some(([tx, ty, tw]) => bx < tx + tw + 4 && tx < bx + w + 4 && Math.abs(by - ty) < 13)) return false;
    if (points.some((p) => p !== of && Math.abs(y(p.flopRate) - by + 4) < radius(p) + 5 && x(p.intensity) + radius(p) > bx && x(p.intensity) - radius(p) < bx + w)) return false;
    taken.push([bx, by, w]);
    return true;
  };
  const every = Math.max(1, Math.ceil((x1 - x0) / (W / 90)));
  for (let e = x0; e <= x1; e += every) parts.push(svg("line", {x1: x(10 ** e), x2: x(10 ** e), y1: T, y2: H - B, class: "axis"}), text(x(10 ** e), H - B + 15, e > -4 && e < 6 ? count(10 ** e) : "10^" + e, "middle"));
  const rows = Math.max(1, Math.ceil((y1 - y0) / 7));
  for (let e = y0; e <= y1; e += rows) parts.push(svg("line", {x1: L, x2: W - R, y1: y(10 ** e), y2: y(10 ** e), class: "axis"}), text(L - 6, y(10 ** e) + 4, scaled(10 ** e, "FLOP/s"), "end"));
  parts.push(text((L + W) / 2, H - 4, "FLOPs per byte of device memory", "middle"));
  const many = new Set(list.map((r) => r.model)).size > 1;
  for (const r of list) {
    const ridge = r.flops / r.bandwidth, left = Math.max(10 ** x0, 10 ** y0 / r.bandwidth);
    parts.push(svg("polyline", {class: "roof", points: `${x(left)},${y(left * r.bandwidth)} ${x(ridge)},${y(r.flops)} ${W - R},${y(r.flops)}`}));
    const label = short(`${r.precisions.join(", ")}: ${scaled(r.flops, "FLOP/s")}${many ? " " + r.model : ""}`, 44), w = wide(label, true);
    for (const [to, dy] of [[W - R, -5], [W - R, 13], [x(ridge) - 6, -4], [x(ridge) - 6, 4]]) if (reserve(to - w, y(r.flops) + dy, w)) { parts.push(text(to, y(r.flops) + dy, label, "end", "strong")); break; }
  }
  const slopes = new Map(list.map((r) => [r.bandwidth, r]));
  for (const r of slopes.values()) {
    const at = Math.sqrt(Math.max(10 ** x0, 10 ** y0 / r.bandwidth) * (r.flops / r.bandwidth)), label = `memory: ${scaled(r.bandwidth, "B/s")}`, w = wide(label, true);
    for (const [px, dy] of [[x(at) - w - 10, -4], [x(at) + 12, 14], [L + 6, -8]]) if (reserve(px, y(at * r.bandwidth) + dy, w)) { parts.push(text(px, y(at * r.bandwidth) + dy, label, "start", "strong")); break; }
  }
  const big = points.slice().sort((a, b) => b.time - a.time);
  for (const p of big) {
    parts.push(svg("circle", {cx: x(p.intensity), cy: y(p.flopRate), r: radius(p), class: `mark ${boundClass(p.bound)}${p.chosen ? " chosen" : ""}`, "fill-opacity": 0.78,
      tabindex: 0, role: "button", "aria-label": p.lines.filter(Boolean).join(", "), "data-key": "point " + p.key, tip: p.lines, ...pressed(p.choose)}));
  }
  for (const p of big.slice(0, 14)) {
    const label = short(p.name, 26), w = wide(label), px = x(p.intensity), py = y(p.flopRate), d = radius(p) + 4;
    if (reserve(px + d, py + 4, w, p)) parts.push(text(px + d, py + 4, label, "start", "label"));
    else if (reserve(px - d - w, py + 4, w, p)) parts.push(text(px - d, py + 4, label, "end", "label"));
    else if (reserve(px - w / 2, py + d + 9, w, p)) parts.push(text(px, py + d + 9, label, "middle", "label"));
  }
  return el("figure", {}, chart(`Roofline of ${plural(points.length, "operation")}: FLOPs per byte against FLOP/s; the area of each is its GPU time`, W, H, ...parts),
    legend([...new Set(points.map((p) => p.bound || ""))].sort().map((b) => [b ? "bound by " + b : "bound not known", boundClass(b)])),
    list.length ? null : empty("No roof is drawn:", "the device's model is not in the table of peaks, or no precision is stated."));
}

// columns draws stacked columns {label, total, parts: [[name, seconds, class]], lines, open, mark}. chosen: index.
function columns(view, label, list, names, opts = {}) {
  const W = widthOf(view), H = 230, L = 58, B = 22, T = 8, R = 4, scale = ticks(Math.max(...list.map((c) => c.total), 1e-12), 4), top = scale[scale.length - 1];
  const each = (W - L - R) / list.length, w = Math.max(0.7, Math.min(46, each - (each > 4 ? 1.5 : 0.3))), y = (v) => H - B - v / top * (H - B - T), parts = [];
  for (const v of scale) parts.push(svg("line", {x1: L, x2: W - R, y1: y(v), y2: y(v), class: "axis"}), text(L - 6, y(v) + 4, seconds(v), "end"));
  list.forEach((c, i) => {
    let sum = 0;
    const x = L + i * each + (each - w) / 2;
    const pieces = c.parts.filter(([, v]) => v > 0).map(([, v, cls]) => {
      sum += v;
      return svg("rect", {x, y: y(sum), width: w, height: Math.max(0, y(sum - v) - y(sum)), class: cls});
    });
    if (c.mark) pieces.push(svg("path", {d: `M${x + w / 2 - 4} ${y(sum) - 8}h8l-4 6z`, class: "outlier"}));
    parts.push(svg("g", {class: "mark column" + (opts.chosen === i ? " chosen" : ""), tip: c.lines, tabindex: 0, role: c.open ? "button" : "img", "aria-label": c.lines.filter(Boolean).join(", "),
      "data-key": `${opts.key} ${c.label}`, ...(c.open ? pressed(c.open) : {})}, svg("rect", {x: L + i * each, y: T, width: each, height: H - B - T, "fill-opacity": 0}), ...pieces));
  });
  const every = Math.ceil(list.length * 46 / (W - L - R)) || 1;
  parts.push(...under(list.map((c, i) => [L + (i + 0.5) * each, short(c.label, Math.max(4, Math.floor(each * every / 7)))]), H - 6, W));
  return el("figure", {}, chart(label, W, H, ...parts), legend(names));
}

// bar draws one horizontal bar of parts [[name, value, class, text]], which add up to total.
function bar(view, label, total, list, height = 26) {
  const W = widthOf(view);
  let at = 0;
  const parts = [];
  for (const [name, v, cls, says] of list) {
    if (!(v > 0)) continue;
    const w = v / Math.max(total, 1e-12) * W;
    parts.push(svg("rect", {x: at, y: 0, width: Math.max(w - 0.6, 0.5), height, class: cls, tip: [name, says, percent(v / total)]}));
    const room = `${name} ${percent(v / total)}`;
    const says1 = [room, percent(v / total)].find((t) => w > wide(t, true) + 10);
    if (says1) parts.push(text(at + 5, height / 2 + 4, says1, "start", "on"));
    at += w;
  }
  return chart(label, W, height, ...parts);
}

// levels draws lines {name, points: [[unix ms, bytes]], limit} over time; points apply until the next one, null is
// unknown.
function levels(view, label, list, from, to) {
  const W = widthOf(view), H = 170, L = 66, B = 20, T = 8, R = 8, most = Math.max(1, ...list.flatMap((l) => l.points.map(([, v]) => v || 0)));
  const unit = 1024 ** Math.floor(Math.log2(most) / 10), scale = ticks(most / unit, 4).map((v) => v * unit), top = scale[scale.length - 1];
  const x = (t) => L + (t - from) / Math.max(1e-6, to - from) * (W - L - R), y = (v) => H - B - v / top * (H - B - T), parts = [];
  for (const v of scale) parts.push(svg("line", {x1: L, x2: W - R, y1: y(v), y2: y(v), class: "axis"}), text(L - 6, y(v) + 4, bytes(v), "end"));
  const n = Math.max(1, Math.min(6, Math.floor((W - L) / 120)));
  const times = Array.from({length: n + 1}, (_, i) => from + (to - from) * i / n);
  parts.push(...under(times.map((t) => [x(t), state.live || to - from > 60e3 ? clock(t) : "+" + seconds((t - from) / 1e3)]), H - 4, W));
  list.forEach((l, i) => {
    let d = "", open = false;
    for (const [t, v] of l.points) {
      if (v === null) { open = false; continue; }
      d += open ? `H${x(t).toFixed(1)}V${y(v).toFixed(1)}` : `M${x(t).toFixed(1)} ${y(v).toFixed(1)}`;
      open = true;
    }
    if (open) d += `H${x(to).toFixed(1)}`;
    parts.push(svg("path", {d, class: "level l" + i % 7}));
  });
  const at = (l, t) => l.points.findLast(([u]) => u <= t);
  const says = ({x: px, node: box}) => {
    const t = from + (px - box.getBoundingClientRect().left - L) / (W - L - R) * (to - from);
    const rows = list.map((l) => [l, (at(l, t) || [0, null])[1]]).filter(([, v]) => v !== null).sort((a, b) => b[1] - a[1]).slice(0, 12);
    return t < from || t > to || !rows.length ? [] : [state.live ? clock(t) : "+" + seconds((t - from) / 1e3), ...rows.map(([l, v]) => `${l.name}: ${bytes(v)}${l.limit ? `, ${percent(v / l.limit)} of ${bytes(l.limit)}` : ""}`)];
  };
  const picture = chart(label, W, H, svg("rect", {x: 0, y: 0, width: W, height: H, "fill-opacity": 0}), ...parts);
  tips.set(picture, says);
  // There are seven colors, so a legend for more lines would be ambiguous.
  return el("figure", {}, picture, list.length > 7 ? el("p", {class: "hint"}, `${list.length} lines; hover over a line to identify it.`) : list.length > 1 ? legend(list.map((l, i) => [l.name, "k" + i])) : null);
}
