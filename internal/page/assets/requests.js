// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// Which requests use the most energy? And the waterfall of a trace.

function requests() {
  const list = state.requests;
  if (!list.length) return missing("requests", "No usage records in this time range.", "Batches that link to their requests get one from gpu_requests: Section.LinkItems in Go, links= in Python. Requests of vLLM, SGLang, TGI and Triton get theirs with --config llm.");
  const most = Math.max(...list.map((q) => q.energy || 0), 1e-12), kinds = new Set(), sum = (k) => (state.bins || []).reduce((t, b) => t + (b[k] || 0), 0);
  for (const q of list) for (const p of q.parts || []) kinds.add(p.name);
  const names = [...kinds].slice(0, 5), all = sum("requests"), items = sum("items");
  return [el("p", {class: "hint"}, `${all > list.length ? `Top ${list.length} of ${plural(all, "request")} by energy; all used` : `${plural(all, "request")}:`} ${scaled(sum("used"), "J")}${items ? `, ${sig(sum("metered") / items)} J per ${itemName()}` : ""}${sum("gpuTime") ? `, ${seconds(sum("gpuTime"))} of GPU time` : ""}. Click a request to see its trace.`),
    table("Requests by use of the GPU", [
      {title: "request", left: true, of: (q) => q.trace, cell: (q) => traceLink(q.trace, `${q.service || ""} ${q.trace.slice(0, 8)}`)},
      {title: "took", help: "as the server saw it", of: (q) => q.duration, cell: (q) => or(q.duration, seconds)},
      {title: "J", of: (q) => q.energy, cell: (q) => (q.energy ? el("span", {class: "shares"}, sig(q.energy), gauge(q.energy / most)) : "")},
      {title: "J per item", of: (q) => q.itemEnergy, cell: (q) => or(q.itemEnergy, sig)},
      {title: "items", wide: "mid", of: (q) => q.items, cell: (q) => or(q.items, (n) => named(sig(n) + (q.itemType ? ` ${short(q.itemType, 16)}${n === 1 || q.itemType.endsWith("s") ? "" : "s"}` : "")))},
      {title: "GPU time", wide: "mid", of: (q) => q.gpuTime, cell: (q) => or(q.gpuTime, seconds)},
      {title: "queue", wide: "wide", of: (q) => q.queue, cell: (q) => or(q.queue, seconds)}, {title: "first item", wide: "wide", of: (q) => q.firstItem, cell: (q) => or(q.firstItem, seconds)},
      ...names.map((n) => ({title: n, wide: "wide", of: (q) => partOf(q, n), cell: (q) => or(partOf(q, n), seconds)}))],
    list, {key: "requests", sort: ["J", true], most: 15, chosen: (q) => q.trace === live.trace})];
}
const partOf = (q, n) => ((q.parts || []).find((p) => p.name === n) || {}).duration;

// The waterfall: the spans of one trace, from the Collector's memory or from the file.
let shownTrace = null; // {id, data, says}

async function openTrace(id) {
  if (!isTrace(id)) return;
  live.trace = id;
  changed();
  await loadTrace();
  byId("trace").scrollTop = 0;
}
async function loadTrace() {
  const id = live.trace;
  shownTrace = {id, data: (state.traces || []).find((t) => t.id === id), says: "This file does not contain the spans of this trace."};
  if (!shownTrace.data && state.live) {
    try {
      const r = await fetch("api/trace?id=" + id);
      if (id !== live.trace) return;
      if (r.ok) shownTrace.data = await r.json();
      else shownTrace.says = sentence((await r.text()).trim());
    } catch (e) {
      shownTrace.says = "The Collector does not answer: " + e.message;
    }
  }
  draw("trace", "requests");
}
function closeTrace() {
  live.trace = "";
  shownTrace = null;
  changed();
  draw("trace", "requests");
}

// traceRows returns the rows of a waterfall: spans depth first, repeated ones of a parent in one row.
function traceRows(t) {
  const key = (s) => s.rank + " " + s.id, at = new Map(t.spans.map((s) => [key(s), s])), ids = new Map(t.spans.map((s) => [s.id, s])), children = new Map(), roots = [];
  for (const s of t.spans) {
    const up = at.get(s.rank + " " + s.parent) || ids.get(s.parent);
    if (up && up !== s) children.set(up, [...(children.get(up) || []), s]);
    else roots.push(s);
  }
  const out = [], seen = new Set(), visit = (list, depth) => {
    const rows = new Map();
    for (const s of list) {
      if (seen.has(s)) continue;
      seen.add(s);
      const k = [s.name, s.service, s.device, s.rank].join("\n"), r = rows.get(k);
      if (r) r.spans.push(s);
      else rows.set(k, {depth, spans: [s]});
    }
    for (const r of rows.values()) {
      out.push(r);
      visit(r.spans.flatMap((s) => children.get(s) || []), depth + 1);
    }
  };
  visit(roots, 0);
  visit(t.spans, 0); // of a cycle
  return out;
}

function waterfall(view) {
  if (!live.trace || !shownTrace || shownTrace.id !== live.trace) return null;
  const t = shownTrace.data, q = state.requests.find((q) => q.trace === live.trace), outside = traceOf(live.trace);
  const end = t ? Math.max(...t.spans.map((s) => s.start + s.duration), 1e-9) : 0;
  const head = el("div", {class: "head"}, el("strong", {}, "Trace " + live.trace.slice(0, 8)), copyButton(live.trace, "shown"),
    t ? el("span", {class: "dim"}, [seconds(end), q && q.energy ? sig(q.energy) + " J" : "", q && q.items ? `${sig(q.items)} ${q.itemType || "items"}` : "", plural(t.spans.length + (t.more || 0), "span")].filter(Boolean).join(" · ")) : "",
    outside ? el("a", {href: outside, target: "_blank", rel: "noreferrer"}, "Open in the trace viewer") : "", el("button", {"data-key": "close trace", onclick: closeTrace}, "close"));
  if (!t) return [head, el("p", {class: "hint"}, shownTrace.says)];
  const all = traceRows(t), rows = all.slice(0, 80), {W, narrow} = trackWidth(view, 128), x = (s) => s / end * W;
  const ranks = new Set(t.spans.map((s) => s.rank)).size > 1, hidden = all.length - rows.length;
  return [head, el("div", {class: "axisrow track"}, el("div", {class: "name dim"}, narrow ? "" : "span"), axisOf(W, (f) => seconds(f * end)), narrow ? "" : el("div", {class: "dim says"}, "time, J")), ...rows.map((r) => {
    const s = r.spans[0], n = r.spans.length, energy = r.spans.reduce((a, s) => a + (s.energy || 0), 0), time = r.spans.reduce((a, s) => a + s.duration, 0);
    const name = `${s.name}${n > 1 ? " × " + n : ""}`, says = [name, [s.service, s.device, s.rank >= 0 ? "rank " + s.rank : ""].filter(Boolean).join(", "), s.type || "on the host", `${seconds(time)}${n > 1 ? " together" : ""}, from ${seconds(s.start)} on`, or(energy, (v) => sig(v) + " J")];
    const bars = svg("path", {d: r.spans.map((s) => `M${x(s.start).toFixed(1)} 2h${Math.max(x(s.duration), 0.8).toFixed(1)}v10h-${Math.max(x(s.duration), 0.8).toFixed(1)}z`).join(""), class: s.type ? colorOf(s.name, s.type) : "hostwork"});
    return el("div", {class: "track", tip: says}, el("div", {class: "name in" + Math.min(r.depth, 8)}, el("bdi", {title: name}, short(name, 22 - 2 * Math.min(r.depth, 4))), ranks && s.rank >= 0 ? el("span", {class: "dim"}, ` rank ${s.rank}`) : ""),
      chart(says.filter(Boolean).join(", "), W, 14, bars), el("div", {class: "says dim"}, [seconds(time), or(energy, (v) => sig(v) + " J")].filter(Boolean).join(" · ")));
  }), hidden > 0 || t.more ? el("p", {class: "hint"}, [hidden > 0 ? plural(hidden, "more row") + " not shown" : "", t.more ? plural(t.more, "span") + " beyond the limit of the page" : ""].filter(Boolean).join("; ") + ".") : null];
}
