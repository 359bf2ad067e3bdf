// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// The critical path of a step: what its length depends on.

const pathKinds = ["host", "launch_delay", "kernel", "communication", "copy", "queue_delay", "unexplained", "not_recorded"];
const pathNames = {host: "host", launch_delay: "launch delay", kernel: "kernels", communication: "communication", copy: "copies", queue_delay: "delay between queued work", unexplained: "not explained", not_recorded: "not recorded"};
const pathClasses = {host: "i1", launch_delay: "i3", kernel: "w0", communication: "w1", copy: "w2", queue_delay: "i8", unexplained: "i9", not_recorded: "i9"};
const pathHelp = {host: "a thread of the host worked, or waited for something other than the device", launch_delay: "from the call that launched the work to its start", queue_delay: "from the end of the work that it waited for to its start", unexplained: "the device waited for something that the profile does not show", not_recorded: "the host waited for the device, which has no recorded work"};

// pathLanes draws the segments of a step on a row for each thread and stream.
function pathLanes(view, m, name) {
  const W = widthOf(view), L = W > 600 ? 150 : 84, R = 8, T = 18, H = 22, all = m.lanes.length * H, x = (ns) => L + ns / Math.max(1, m.length_ns) * (W - L - R), parts = [];
  // Threads of the host are above streams.
  const device = new Set(m.segments.filter(([, k]) => k && pathKinds[k] !== "not_recorded").map((s) => s[2])), order = m.lanes.map((_, i) => i).sort((a, b) => device.has(a) - device.has(b) || a - b), row = new Map(order.map((lane, i) => [lane, i]));
  for (const t of ticks(m.length_ns / 1e9, Math.max(2, Math.floor((W - L) / 120)))) {
    if (x(t * 1e9) > W - R) continue;
    parts.push(svg("line", {x1: x(t * 1e9), x2: x(t * 1e9), y1: T - 3, y2: T + all, class: "axis"}), text(Math.min(x(t * 1e9), W - 24), 11, seconds(t), "middle"));
  }
  order.forEach((lane, i) => parts.push(text(2, T + i * H + 15, W > 600 ? short(m.lanes[lane], 22) : m.lanes[lane].replace(/thread -?(\d+)/, (_, n) => "t" + n % 10000).replace("stream ", "s"), "start", "label")));
  let at = 0, before = -1;
  for (const [length, k, lane, n] of m.segments) {
    const kind = pathKinds[k], y = T + row.get(lane) * H, left = x(at);
    if (before >= 0 && before !== lane) parts.push(svg("path", {d: `M${left} ${T + row.get(before) * H + H / 2}V${y + H / 2}`, class: "jump"}));
    parts.push(svg("rect", {x: left, y: y + 3, width: Math.max(0.7, x(at + length) - left), height: H - 6, class: pathClasses[kind], tip: [m.names[n] || pathNames[kind], `${pathNames[kind]}, ${m.lanes[lane]}`, `${nanos(length)} (${percent(length / m.length_ns)}), from ${nanos(at)} on`]}));
    const w = x(at + length) - left, label = m.names[n] || pathNames[kind];
    if (w > 60) parts.push(text(left + 4, T + row.get(lane) * H + 15, short(label, Math.floor((w - 8) / 7)), "start", "on"));
    at += length;
    before = lane;
  }
  return chart(`Critical path of ${name}, ${nanos(m.length_ns)}, on ${plural(m.lanes.length, "row")}; the table below has its parts`, W, T + all + 2, ...parts);
}

// What does the length of a step depend on?
function profilePath(view) {
  const all = (state.profiles || []).flatMap((p) => (p.paths || []).map((path) => ({p, path, name: [state.profiles.length > 1 ? (p.rank >= 0 && p.world !== 1 ? `rank ${p.rank}` : p.name) : "", path.process ? `process ${path.process}` : ""].filter(Boolean).join(", ")})));
  if (!all.length) return null;
  const kindsOf = (path) => path.kinds.map(({kind, time_ns}) => [pathNames[kind], time_ns, pathClasses[kind], nanos(time_ns / (path.steps || 1))]);
  const out = [], large = many() ? [all.find(({p}) => p === shown(everyDevice()).p) || all[0]] : all;
  if (many()) out.push(stripes(view, `Critical paths of ${plural(all.length, "process", "processes")}: the mean step, on one scale`, all.map(({path, name}) => ({name, total: path.length_ns / (path.steps || 1), parts: kindsOf(path).map(([n, v, c, says]) => [n, v / (path.steps || 1), c, says])}))));
  for (const {path, name} of large) {
    const steps = path.steps || 1, what = path.steps ? (path.steps > 1 ? `mean of ${count(path.steps)} steps` : "one step") : "the whole profile, which has no steps", m = path.median;
    out.push(el("figure", {}, el("figcaption", {}, name ? el("strong", {}, name) : "", el("span", {class: "dim"}, `critical path, ${what}: ${nanos(path.length_ns / steps)}`)),
      bar(view, `Critical path${name ? " of " + name : ""}: ${path.kinds.map((k) => `${pathNames[k.kind]} ${percent(k.time_ns / path.length_ns)}`).join(", ")}`, path.length_ns, kindsOf(path))));
    out.push(el("figure", {}, path.steps > 1 ? el("figcaption", {}, el("span", {class: "dim"}, `the path of ${m.name || "a step"}, of median length: ${nanos(m.length_ns)}`)) : "", pathLanes(view, m, m.name || "the profile")));
    const perStep = (r) => r.gain_ns / steps, share = (r) => r.gain_ns / path.length_ns;
    out.push(table("What the path consists of. If one of these took no time, a step would be shorter by this at most, and by less if another path is nearly as long", [
      {title: "part", left: true, of: (r) => r.name || pathNames[r.kind], cell: (r) => named(r.name || pathNames[r.kind])}, {title: "kind", left: true, of: (r) => pathNames[r.kind], cell: (r) => el("span", {title: pathHelp[r.kind]}, pathNames[r.kind])}, {title: "thread", left: true, of: (r) => r.lane || ""},
      {title: "times", help: "segments of the path, in one step on average", of: (r) => r.count / steps, cell: (r) => sig(r.count / steps)}, {title: "at most saved", help: "its time on the path, of the host only while the device was idle; in one step on average", of: perStep, cell: (r) => el("span", {}, nanos(perStep(r)), gauge(share(r)))}, {title: "of path", of: share, cell: (r) => percent(share(r))},
    ], path.parts, {key: "path " + name, sort: ["at most saved", true], filter: (r) => `${r.name || ""} ${pathNames[r.kind]} ${r.lane || ""}`, most: 12}));
    const notes = [path.moreParts ? `${plural(path.moreParts, "more part")} with ${nanos(path.rest_ns / steps)} per step not listed.` : "", m.shortest_ns ? `Drawn without segments shorter than ${nanos(m.shortest_ns)}: they are part of a neighbor.` : "",
      path.inferred_waits ? `${plural(path.inferred_waits, "wait")} of a stream for another one on the paths inferred from times${path.stated_waits ? `, ${count(path.stated_waits)} stated by the profile` : ""}.` : "", path.merged_ranges ? `${plural(path.merged_ranges, "short range")} of the host count for a neighbor, because there are too many.` : "", path.dropped_activities ? `${plural(path.dropped_activities, "activity", "activities")} beyond the limit.` : ""].filter(Boolean);
    if ((m.longest || []).length) out.push(details("longest " + name, "longest segments", table(`Longest segments of the path of ${m.name || "the profile"}`, [{title: "at", of: (r) => r.at_ns + 1, cell: (r) => nanos(r.at_ns)}, {title: "segment", left: true, of: (r) => r.name || pathNames[r.kind], cell: (r) => named(r.name || pathNames[r.kind])}, {title: "row", left: true, of: (r) => r.lane}, {title: "time", of: (r) => r.time_ns, cell: (r) => nanos(r.time_ns)}], m.longest, {key: "longest " + name})));
    if (notes.length) out.push(el("p", {class: "hint"}, notes.join(" ")));
  }
  const seen = new Set(all.flatMap(({path}) => path.kinds.map((k) => k.kind)));
  out.splice(many() ? 1 : 2, 0, legend(pathKinds.filter((k) => seen.has(k)).map((k) => [pathNames[k], pathClasses[k]])));
  return out;
}
