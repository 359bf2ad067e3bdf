// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
"use strict";
// Text from the wire is only ever set as text: el() and svg() make nodes, nothing here parses HTML.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  const inline = byId("state");
  let range = 60, paused = false, chosen = "", sort = {key: "time", down: true}, state = null;

  function el(name, props, ...children) {
    const n = document.createElement(name);
    for (const [k, v] of Object.entries(props || {})) {
      if (k.startsWith("on")) n.addEventListener(k.slice(2), v);
      else if (v !== undefined && v !== false) n.setAttribute(k, v === true ? "" : v);
    }
    n.append(...children.filter((c) => c !== undefined && c !== null));
    return n;
  }
  function svg(name, props, ...children) {
    const n = document.createElementNS(SVG, name);
    for (const [k, v] of Object.entries(props || {})) {
      if (k.startsWith("on")) n.addEventListener(k.slice(2), v);
      else if (v !== undefined) n.setAttribute(k, v);
    }
    n.append(...children);
    return n;
  }
  function chart(label, width, height, ...children) {
    return svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label}, ...children);
  }

  const sig = (x, n = 3) => Number(x.toPrecision(n)).toLocaleString("en", {maximumSignificantDigits: n});
  function seconds(s) {
    if (!s) return "0";
    if (s >= 1) return sig(s) + " s";
    if (s >= 1e-3) return sig(s * 1e3) + " ms";
    if (s >= 1e-6) return sig(s * 1e6) + " µs";
    return sig(s * 1e9) + " ns";
  }
  function scaled(x, unit) {
    for (const [f, p] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (x >= f) return sig(x / f) + " " + p + unit;
    return sig(x) + " " + unit;
  }
  const percent = (x) => sig(x * 100) + " %";
  const or = (x, f) => (x ? f(x) : "");
  const clock = (ms) => new Date(ms).toLocaleTimeString();

  // Colours by category or name, the same everywhere.
  const kinds = new Map();
  function kind(name) {
    if (!kinds.has(name)) kinds.set(name, "k" + Math.min(kinds.size, 7));
    return kinds.get(name);
  }
  for (const n of ["compute", "memory", "launch", "latency"]) kind(n);
  const phaseKinds = new Map(["forward", "backward", "optimizer", "comm", "data", "exposed"].map((n, i) => [n, "k" + [0, 2, 3, 1, 5, 4][i]]));
  const phaseKind = (n) => phaseKinds.get(n) || (n === "other" ? "k7" : "k6");

  const tip = byId("tip");
  function hover(lines) {
    const show = (e) => {
      tip.textContent = lines.filter(Boolean).join("\n");
      tip.hidden = false;
      const box = e.target.getBoundingClientRect();
      const x = e.clientX || box.right, y = e.clientY || box.bottom;
      tip.style.left = Math.max(4, Math.min(x + 12, innerWidth - tip.offsetWidth - 8)) + "px";
      tip.style.top = Math.max(4, Math.min(y + 12, innerHeight - tip.offsetHeight - 8)) + "px";
    };
    const hide = () => { tip.hidden = true; };
    return {onmousemove: show, onmouseleave: hide, onfocus: show, onblur: hide};
  }
  addEventListener("keydown", (e) => { if (e.key === "Escape") { tip.hidden = true; if (chosen) { chosen = ""; draw(); } } });

  function traceLink(id, text) {
    if (!state.traceUrl || !/^[0-9a-f]{32}$/.test(id || "")) return document.createTextNode(text);
    return el("a", {href: state.traceUrl.replace("{traceID}", id), target: "_blank", rel: "noreferrer"}, text);
  }
  function openTrace(id) {
    if (state.traceUrl && /^[0-9a-f]{32}$/.test(id || "")) open(state.traceUrl.replace("{traceID}", id), "_blank", "noreferrer");
  }

  function legend(names, of) {
    return el("ul", {class: "legend"}, ...names.map((n) => el("li", {}, svg("svg", {viewBox: "0 0 10 10", "aria-hidden": "true"}, svg("rect", {width: 10, height: 10, class: of(n)})), n)));
  }
  function empty(view, what, todo) {
    view.replaceChildren(el("p", {class: "empty"}, what + " " + todo));
  }
  function table(caption, columns, rows, opts = {}) {
    const head = el("tr", {}, ...columns.map((c) => el("th", {scope: "col", "aria-sort": opts.sort && opts.sort.key === c.key ? (opts.sort.down ? "descending" : "ascending") : undefined},
      opts.onsort && c.key ? el("button", {onclick: () => opts.onsort(c.key)}, c.title) : c.title)));
    return el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption}, el("table", {}, el("caption", {}, caption), el("thead", {}, head),
      el("tbody", {}, ...rows.map((r) => el("tr", {class: opts.isChosen && opts.isChosen(r) ? "chosen" : undefined}, ...columns.map((c) => el("td", {}, c.cell(r))))))));
  }

  // What is each GPU doing?
  function devices(view) {
    if (!state.devices.length) return empty(view, "No device has been seen yet.", "Send spans with hw.id, or switch the gpu receiver on (it needs DCGM or NVML).");
    view.replaceChildren(...state.devices.map((d) => {
      const W = 1000, H = 74, n = d.seconds.length;
      const title = [d.name, d.model, d.name ? "" : d.id].filter(Boolean).join(" · ");
      if (!n) return el("p", {class: "empty"}, title + ": nothing in this time.");
      const first = d.seconds[0].t, last = d.seconds[n - 1].t + 1, span = Math.max(last - first, 10);
      const x = (t) => (t - first) / span * W, w = Math.max(W / span - 0.4, 0.6);
      const power = d.seconds.filter((s) => s.power !== undefined), most = Math.max(1, ...power.map((s) => s.power));
      const parts = [svg("line", {x1: 0, x2: W, y1: 50, y2: 50, class: "axis"})];
      for (const s of d.seconds) {
        const lines = [clock(s.t * 1000), "covered by spans " + percent(s.covered), s.busy !== undefined ? "device busy " + percent(s.busy) : "",
          s.power !== undefined ? "power " + sig(s.power) + " W" : "", s.temperature !== undefined ? sig(s.temperature) + " °C" : "", s.throttled ? "throttled" : ""];
        if (s.busy !== undefined) parts.push(svg("rect", {x: x(s.t), y: 50 - 46 * s.busy, width: w, height: 46 * s.busy, class: "busy"}));
        parts.push(svg("rect", {x: x(s.t), y: 50 - 46 * s.covered, width: w, height: 46 * s.covered, class: "covered"}));
        if (s.throttled) parts.push(svg("rect", {x: x(s.t), y: 0, width: w, height: 3, class: "throttle"}));
        parts.push(svg("rect", {x: x(s.t), y: 0, width: W / span, height: 50, "fill-opacity": 0, ...hover(lines)}));
      }
      if (power.length > 1) parts.push(svg("polyline", {class: "power", points: power.map((s) => `${x(s.t + 0.5)},${50 - 44 * s.power / most}`).join(" ")}));
      const recent = d.recent.slice(-200);
      if (recent.length) {
        const a = Math.min(...recent.map((r) => r.start)), b = Math.max(...recent.map((r) => r.end)), u = W / Math.max(b - a, 1e-6);
        for (const r of recent) parts.push(svg("rect", {x: (r.start - a) * u, y: 56, width: Math.max((r.end - r.start) * u, 0.6), height: 12, class: "mark " + kind(r.name), tabindex: -1,
          onclick: () => openTrace(r.trace), ...hover([r.name, seconds((r.end - r.start) / 1e3)])}));
      }
      const busy = d.seconds.reduce((t, s) => t + s.covered, 0) / n;
      return el("figure", {}, el("figcaption", {}, `${title}: covered ${percent(busy)}${power.length ? ", up to " + sig(most) + " W" : ""}`),
        chart(`${title}: share of each second covered by spans, power, throttling; below, the newest operations`, W, H, ...parts));
    }), legend(["covered by spans", "busy, as the device says", "power", "throttled"], (n) => ({"covered by spans": "covered", "busy, as the device says": "busy", power: "k1", throttled: "throttle"})[n]));
  }

  // Which operation is memory bound?
  const operationColumns = [
    {key: "name", title: "operation", cell: (o) => el("button", {onclick: () => choose(o), title: o.service || undefined}, o.name)},
    {key: "type", title: "type", cell: (o) => o.type},
    {key: "count", title: "count", cell: (o) => o.count.toLocaleString("en")},
    {key: "time", title: "GPU time", cell: (o) => seconds(o.time)},
    {key: "byteRate", title: "B/s", cell: (o) => or(o.byteRate, (x) => scaled(x, "B/s"))},
    {key: "flopRate", title: "FLOP/s", cell: (o) => or(o.flopRate, (x) => scaled(x, "FLOP/s"))},
    {key: "roofline", title: "of roof", cell: (o) => or(o.roofline, percent)},
    {key: "bound", title: "bound", cell: (o) => o.bound || ""},
    {key: "energy", title: "J", cell: (o) => or(o.energy, sig)},
    {title: "trace", cell: (o) => (state.traceUrl && o.trace ? traceLink(o.trace, "slowest") : "")},
  ];
  const keyOf = (o) => o.service + "\n" + o.name + "\n" + o.type;
  function choose(o) { chosen = chosen === keyOf(o) ? "" : keyOf(o); draw(); }
  function roofline(view) {
    const all = state.operations;
    if (!all.length) return empty(view, "No GPU span has come in this time.", "Point an OTLP exporter at this Collector, or choose a longer time.");
    const rows = all.slice().sort((a, b) => {
      const u = a[sort.key] ?? "", v = b[sort.key] ?? "";
      const c = typeof u === "string" && typeof v === "string" ? u.localeCompare(v) : (u || 0) - (v || 0);
      return sort.down ? -c : c;
    });
    const grid = el("div", {class: "split"});
    const points = all.filter((o) => o.intensity && o.flopRate);
    if (points.length) grid.append(scatter(points));
    else grid.append(el("p", {class: "empty"}, "No operation states both FLOPs and bytes, so none can be placed below a roof. Declare Work{FLOPs, Read, Written}, or record shapes in PyTorch's profiler."));
    grid.append(table(`${all.length} operations${state.moreOperations ? ", and " + state.moreOperations + " more with less GPU time" : ""}`, operationColumns, rows,
      {sort, isChosen: (o) => keyOf(o) === chosen, onsort: (k) => { sort = {key: k, down: sort.key === k ? !sort.down : k !== "name"}; draw(); }}));
    view.replaceChildren(grid);
  }
  function scatter(points) {
    const W = 560, H = 340, L = 84, B = 34, T = 10, R = 10, lg = Math.log10;
    const roofs = [];
    for (const r of state.roofs) {
      const wanted = new Set(points.filter((p) => p.model === r.model).map((p) => p.precision).filter(Boolean));
      for (const [p, f] of Object.entries(r.flops)) if (wanted.has(p)) roofs.push({model: r.model, precision: p, flops: f, bandwidth: r.bandwidth});
    }
    const xs = points.map((p) => p.intensity).concat(roofs.map((r) => r.flops / r.bandwidth)), ys = points.map((p) => p.flopRate).concat(roofs.map((r) => r.flops));
    const x0 = Math.floor(lg(Math.min(...xs)) - 0.3), x1 = Math.ceil(lg(Math.max(...xs)) + 0.3), y0 = Math.floor(lg(Math.min(...ys)) - 0.2), y1 = Math.ceil(lg(Math.max(...ys)) + 0.1);
    const x = (v) => L + (lg(v) - x0) / (x1 - x0) * (W - L - R), y = (v) => H - B - (lg(v) - y0) / (y1 - y0) * (H - B - T);
    const parts = [];
    for (let e = x0; e <= x1; e++) parts.push(svg("line", {x1: x(10 ** e), x2: x(10 ** e), y1: T, y2: H - B, class: "axis"}), svg("text", {x: x(10 ** e), y: H - B + 14, "text-anchor": "middle"}, e >= 0 && e < 6 ? String(10 ** e) : "1e" + e));
    for (let e = y0; e <= y1; e++) parts.push(svg("line", {x1: L, x2: W - R, y1: y(10 ** e), y2: y(10 ** e), class: "axis"}), svg("text", {x: L - 4, y: y(10 ** e) + 4, "text-anchor": "end"}, scaled(10 ** e, "FLOP/s")));
    parts.push(svg("text", {x: (L + W) / 2, y: H - 4, "text-anchor": "middle"}, "FLOPs per byte"));
    for (const r of roofs) {
      const ridge = r.flops / r.bandwidth, left = Math.max(10 ** x0, 10 ** y0 / r.bandwidth);
      parts.push(svg("polyline", {class: "roof", points: `${x(left)},${y(left * r.bandwidth)} ${x(ridge)},${y(r.flops)} ${W - R},${y(r.flops)}`}),
        svg("text", {x: W - R, y: y(r.flops) - 3, "text-anchor": "end"}, `${r.model} ${r.precision}`));
    }
    const most = Math.max(...points.map((p) => p.time), 1e-12);
    for (const p of points.slice().sort((a, b) => b.time - a.time)) {
      const lines = [p.name, "GPU time " + seconds(p.time), scaled(p.flopRate, "FLOP/s"), sig(p.intensity) + " FLOP/B", p.byteRate ? scaled(p.byteRate, "B/s") : "", p.roofline ? percent(p.roofline) + " of the roof" : "", p.bound ? "bound by " + p.bound : ""];
      parts.push(svg("circle", {cx: x(p.intensity), cy: y(p.flopRate), r: 3 + 15 * Math.sqrt(p.time / most), class: `mark ${kind(p.bound || "not known")}${keyOf(p) === chosen ? " chosen" : ""}`, "fill-opacity": 0.8,
        tabindex: 0, role: "button", "aria-label": lines.filter(Boolean).join(", "), onclick: () => choose(p), onkeydown: (e) => { if (e.key === "Enter") choose(p); }, ...hover(lines)}));
    }
    const bounds = [...new Set(points.map((p) => p.bound || "not known"))];
    return el("figure", {}, chart("Roofline: FLOPs per byte against FLOP/s of each operation; the area is GPU time", W, H, ...parts), legend(bounds, kind),
      roofs.length ? undefined : el("p", {class: "empty"}, "No roof: the device's model is not in the table of peaks, or no precision is stated."));
  }

  // Where does the time of a step go?
  function steps(view) {
    const all = state.steps.filter((s) => s.duration > 0);
    if (!all.length) return empty(view, "No step has ended in this time.", "A loop makes them: train.Loop in Go, otelgpu.loop in Python, ProfilerStep in PyTorch's profiles.");
    const shown = all.slice(-120), most = Math.max(...shown.map((s) => s.duration)), W = 640, H = 220, B = 16, each = W / shown.length;
    const names = new Set(), parts = [];
    shown.forEach((s, i) => {
      let y = H - B;
      const list = (s.phases || []).map((p) => [p.name, p.duration]);
      if (s.exposed) list.push(["exposed", s.exposed]);
      let sum = list.reduce((t, [, d]) => t + d, 0);
      const fit = sum > s.duration ? s.duration / sum : 1; // phases that overlap are drawn to the step's length
      if (sum < s.duration) list.push(["other", s.duration - sum]);
      const lines = [`${s.name} ${s.index}${s.rank >= 0 ? ", rank " + s.rank : ""}: ${seconds(s.duration)}`, ...list.map(([n, d]) => `${n} ${seconds(d)}`), s.mfu ? "MFU " + percent(s.mfu) : "",
        s.items ? `${sig(s.items)} ${s.itemType || "items"}` : "", s.energy ? sig(s.energy) + " J" : "", fit < 1 ? "phases overlap" : ""];
      for (const [n, d] of list) {
        const h = d * fit / most * (H - B - 6);
        y -= h;
        names.add(n);
        parts.push(svg("rect", {x: i * each + 0.5, y, width: Math.max(each - 1, 0.6), height: h, class: "mark " + phaseKind(n), onclick: () => openTrace(s.trace), ...hover(lines)}));
      }
    });
    parts.push(svg("text", {x: 0, y: 10}, seconds(most)), svg("text", {x: 0, y: H - 3}, `${shown[0].name} ${shown[0].index}`), svg("text", {x: W, y: H - 3, "text-anchor": "end"}, String(shown[shown.length - 1].index)));
    const slow = shown.slice().sort((a, b) => b.duration - a.duration).slice(0, 5);
    view.replaceChildren(chart(`Length of the last ${shown.length} steps by phase`, W, H, ...parts), legend([...names], phaseKind),
      table("The longest of them", [
        {title: "step", cell: (s) => traceLink(s.trace, `${s.name} ${s.index}${s.rank >= 0 ? " · rank " + s.rank : ""}`)}, {title: "length", cell: (s) => seconds(s.duration)},
        {title: "exposed comm.", cell: (s) => or(s.exposed, seconds)}, {title: "other", cell: (s) => or(s.other, seconds)}, {title: "items/s", cell: (s) => (s.items ? sig(s.items / s.duration) : "")},
        {title: "MFU", cell: (s) => or(s.mfu, percent)}, {title: "J", cell: (s) => or(s.energy, sig)}], slow));
  }

  // Which requests burn the joules?
  function requests(view) {
    if (!state.requests.length) return empty(view, "No request has an account yet.", "Batches that link to their requests get one from gpu_requests: Section.LinkItems in Go, links= in Python.");
    view.replaceChildren(table(`${state.requests.length} requests, the most joules first`, [
      {title: "request", cell: (q) => traceLink(q.trace, (q.service || "") + " " + q.trace.slice(0, 8))}, {title: "J", cell: (q) => or(q.energy, sig)},
      {title: "J per item", cell: (q) => (q.energy && q.items ? sig(q.energy / q.items) : "")}, {title: "items", cell: (q) => or(q.items, (n) => sig(n) + " " + (q.itemType || ""))},
      {title: "GPU time", cell: (q) => or(q.gpuTime, seconds)}, {title: "queue", cell: (q) => or(q.queue, seconds)}, {title: "first item", cell: (q) => or(q.firstItem, seconds)},
      {title: "of which", cell: (q) => (q.parts || []).map((p) => `${p.name} ${seconds(p.duration)}`).join(", ")}], state.requests));
  }

  // Which rank is late?
  function ranks(view) {
    const ranked = state.steps.filter((s) => s.rank >= 0 && s.duration > 0), list = [...new Set(ranked.map((s) => s.rank))].sort((a, b) => a - b);
    if (list.length < 2) return empty(view, "Fewer than two ranks have sent steps.", "Ranks are told by the resource attribute gpu.job.rank, which the library and torchrun's environment set.");
    const indexes = [...new Set(ranked.map((s) => s.index))].sort((a, b) => a - b).slice(-60), W = 640, cell = Math.min(18, 240 / list.length), H = list.length * cell + 18, parts = [];
    const own = (s) => s.duration - (s.exposed || 0);
    for (const [i, index] of indexes.entries()) {
      const column = ranked.filter((s) => s.index === index), mid = column.map(own).sort((a, b) => a - b)[column.length >> 1];
      for (const s of column) {
        const ratio = mid > 0 ? own(s) / mid : 1;
        parts.push(svg("rect", {x: 40 + i * (W - 40) / indexes.length, y: list.indexOf(s.rank) * cell, width: Math.max((W - 40) / indexes.length - 0.6, 0.6), height: cell - 1, class: "mark " + (ratio > 1.05 ? "k4" : "k0"),
          "fill-opacity": Math.min(1, 0.25 + Math.abs(ratio - 1) * 3), onclick: () => openTrace(s.trace), ...hover([`rank ${s.rank}, step ${index}`, "own time " + seconds(own(s)), `${sig(ratio)} times the median`])}));
      }
    }
    for (const r of list) parts.push(svg("text", {x: 0, y: list.indexOf(r) * cell + cell - 3}, "rank " + r));
    view.replaceChildren(chart("Own time (step without exposed communication) of each rank against the median of the step", W, H, ...parts), legend(["as the median", "later than the median"], (n) => (n[0] === "a" ? "k0" : "k4")));
  }

  // Does everything arrive?
  function health(view) {
    const h = state.health, ago = (t) => (t ? (state.live ? sig(Math.max(0, (state.now - t) / 1000)) + " s ago" : clock(t)) : "never");
    const rows = [["spans", `${h.spans.toLocaleString("en")}, of which ${h.gpuSpans.toLocaleString("en")} of GPU work`], ["steps", h.steps.toLocaleString("en")], ["requests with an account", h.requests.toLocaleString("en")],
      ["newest span", ago(h.lastSpan)], ["newest metric of a device", ago(h.lastMetric)], ["joined with samples", h.coverage ? percent(h.coverage) + " of their time" : "not at all (gpu_join)"]];
    for (const [k, n] of [["operationsDropped", "operations"], ["devicesDropped", "devices"], ["requestsDropped", "requests"]]) if (h[k]) rows.push([`${n} that found no room`, h[k].toLocaleString("en")]);
    view.replaceChildren(el("dl", {}, ...rows.flatMap(([a, b]) => [el("dt", {}, a), el("dd", {}, b)])));
  }

  const views = {devices, roofline, steps, requests, ranks, health};
  function draw() {
    if (!state) return;
    const focus = document.activeElement, scroll = new Map();
    for (const n of document.querySelectorAll(".scroll")) scroll.set(n.getAttribute("aria-label").replace(/\d+/g, ""), n.scrollTop);
    for (const [name, f] of Object.entries(views)) f(byId(name).querySelector(".view"));
    for (const n of document.querySelectorAll(".scroll")) n.scrollTop = scroll.get(n.getAttribute("aria-label").replace(/\d+/g, "")) || 0;
    if (focus && !focus.isConnected && focus.textContent) {
      const again = [...document.querySelectorAll(focus.tagName)].find((n) => n.textContent === focus.textContent && n.tabIndex >= 0);
      if (again) again.focus({preventScroll: true});
    }
    const found = byId("findings");
    found.hidden = !(state.findings || []).length;
    found.querySelector("ol").replaceChildren(...(state.findings || []).map((f) => el("li", {}, f)));
    byId("summary").textContent = `${state.devices.length} devices, ${state.operations.length + (state.moreOperations || 0)} operations, ${state.steps.length} steps, ${state.requests.length} requests` + (state.live ? ` at ${clock(state.now)}` : "");
    document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
  }

  let loading = false, again = false;
  async function load() {
    if (loading) { again = true; return; }
    loading = true;
    try {
      const r = await fetch(`api/state?range=${range}`);
      if (!r.ok) throw new Error(await r.text());
      state = await r.json();
      draw();
    } catch (e) {
      byId("summary").textContent = "The Collector does not answer: " + e.message;
    }
    loading = false;
    if (again) { again = false; load(); }
  }
  function controls() {
    byId("range").replaceChildren(...[[60, "1 min"], [300, "5 min"], [600, "10 min"]].map(([s, t]) => el("button", {"aria-pressed": String(range === s), onclick: () => { range = s; controls(); load(); }}, t)),
      el("button", {"aria-pressed": String(paused), onclick: () => { paused = !paused; controls(); if (!paused) load(); }}, "pause"));
  }

  if (inline) {
    state = JSON.parse(inline.textContent);
    draw();
    return;
  }
  controls();
  load();
  const source = new EventSource("api/events");
  source.addEventListener("state", () => { if (!paused && !document.hidden) load(); });
  source.addEventListener("error", () => { byId("summary").textContent = "The Collector does not answer; the page goes on when it does."; });
})();
