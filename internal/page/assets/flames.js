// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// Which code path uses the time? One flame graph for the live page and for reports, and the difference of two.

const flameTypes = [["GPU time", nanos], ["energy", (v) => scaled((v || 0) / 1e6, "J")], ["idle time", nanos]];
// Groups choose the kinds of frames of a stack; null: all of them, from the kernel up. Tags are a frame below the service.
const flameGroups = {
  "call stack": () => true,
  kernel: null,
  operation: (f) => ["service", "route", "step", "section", "idle"].includes(f.kind),
  module: (f) => ["service", "module", "kernel", "copy", "idle"].includes(f.kind),
  rank: () => true, device: () => true, throttle: () => true,
};
const flameTags = {rank: (t) => t.rank && `rank ${t.rank}`, device: (t) => t.device, throttle: (t) => t.throttle && `throttled (${t.throttle})`};
const flame = {type: 0, group: "call stack", find: "", zoom: [], at: [], of: "", sources: [], against: "", shares: false, data: null, base: null, asked: 0, query: "", made: null};
const flameRow = 18, flameRows = 150, flameRects = 4000;

// flameSums returns the stacks of a graph with the sums of everything below, in arrays, because a graph has many more
// stacks than a screen. Stacks with several tags are included once for each.
function flameSums(g, tagged) {
  const tags = tagged ? (g.tags || []).map((t) => tagged(t) || "") : [], t = flame.type, nodes = g.nodes;
  let frames = g.frames, size = nodes.length, p = new Int32Array(size), f = new Int32Array(size), own = new Float64Array(size), from = null; // from: the node of the graph
  if (!tags.some(Boolean)) for (let i = 0; i < size; i++) { const n = nodes[i]; p[i] = n.p; f[i] = n.f; if (n.v[t] > 0) own[i] = n.v[t]; }
  else {
    frames = [...g.frames];
    [p, f, own, from] = [[], [], [], []];
    const tagFrames = tags.map((name) => (name ? frames.push({name, kind: "tag"}) - 1 : -1)), copies = tags.map(() => new Map());
    const add = (up, frame, i) => { f.push(frame); own.push(0); from.push(i); return p.push(up) - 1; };
    const copy = (i, tag) => {
      if (i < 0) return -1;
      let at = copies[tag].get(i);
      if (at !== undefined) return at;
      const n = nodes[i];
      at = add(copy(n.p, tag), n.f, i);
      if (n.p < 0 && tags[tag]) at = add(at, tagFrames[tag], i);
      copies[tag].set(i, at);
      return at;
    };
    for (let i = 0; i < size; i++) {
      const n = nodes[i];
      if (!(n.v[t] > 0)) continue;
      const at = copy(i, n.g || 0);
      own[at] += n.v[t];
      from[at] = i;
    }
    size = p.length;
  }
  const trace = (i) => nodes[from ? from[i] : i].t, sum = new Float64Array(size), most = new Float64Array(size), best = new Int32Array(size);
  const first = new Int32Array(size).fill(-1), next = new Int32Array(size).fill(-1), roots = [];
  let total = 0;
  for (let i = size - 1; i >= 0; i--) { // parents precede their children
    const up = p[i], v = own[i];
    sum[i] += v;
    if (v > most[i] && trace(i)) { most[i] = v; best[i] = i; }
    if (up < 0) { roots.push(i); total += sum[i]; continue; }
    sum[up] += sum[i];
    if (most[i] > most[up]) { most[up] = most[i]; best[up] = best[i]; }
    next[i] = first[up];
    first[up] = i;
  }
  return {frames, p, f, own, trace, sum, most, best, first, next, roots, total};
}
const flameKey = (f) => `${f.kind} ${f.name} ${f.full || ""}`;
// flameTree merges the stacks of a graph, and of the baseline graph, if there is one. Frames below a frame are merged
// when they are needed.
function flameTree(data, base) {
  const group = flameGroups[flame.group], sides = [data, base].filter(Boolean).map((g) => flameSums(g, flameTags[flame.group]));
  const scale = base && flame.shares && sides[1].total > 0 ? sides[0].total / sides[1].total : 1;
  const node = (frame, up) => ({frame, up, depth: up ? up.depth + 1 : 0, sum: 0, before: 0, trace: "", most: 0, of: [null, null], children: null, sides, group});
  // join adds the stack i to a child of a node; from is the stack whose value counts, which differs from i in inverted
  // stacks.
  const join = (up, side, i, from, v) => {
    const s = sides[side], frame = s.frames[s.f[i]];
    let n = (side ? up.same ||= new Map() : up.children).get(frame);
    if (!n && side) { // the baseline graph has its own frames, which are matched by text once
      up.keys ||= new Map([...up.children.values()].map((c) => [flameKey(c.frame), c]));
      n = up.keys.get(flameKey(frame));
      if (n) up.same.set(frame, n);
    }
    if (!n) {
      up.children.set(frame, n = node(frame, up));
      if (side) { up.keys.set(flameKey(frame), n); up.same.set(frame, n); }
    }
    const of = n.of[side] ||= [];
    of.push(i);
    if (!group) of.push(from);
    if (side) { n.before += v * scale; return; }
    n.sum += v;
    const most = group ? s.most[i] : s.trace(from) ? v : 0;
    if (most > n.most) { n.most = most; n.trace = s.trace(group ? s.best[i] : from); }
  };
  const expand = (n) => sides.forEach((s, side) => {
    const below = (i) => { if (!(s.sum[i] > 0)) return; if (group(s.frames[s.f[i]])) join(n, side, i, i, s.sum[i]); else for (let c = s.first[i]; c >= 0; c = s.next[c]) below(c); };
    const of = n.of[side] || [];
    if (group && !n.up) s.roots.forEach(below);
    else if (group) for (const i of of) for (let c = s.first[i]; c >= 0; c = s.next[c]) below(c);
    else if (!n.up) s.own.forEach((v, i) => { if (v > 0) join(n, side, i, i, v); });
    else for (let k = 0; k < of.length; k += 2) if (s.p[of[k]] >= 0) join(n, side, s.p[of[k]], of[k + 1], s.own[of[k + 1]]);
  });
  const root = node({name: "all", kind: "service"}, null);
  [root.sum, root.before, root.expand] = [sides[0].total, base ? sides[1].total * scale : 0, expand];
  return root;
}
// flameMap returns the frames below one.
function flameMap(n) {
  if (!n.children) {
    n.children = new Map();
    let root = n;
    while (root.up) root = root.up;
    root.expand(n);
  }
  return n.children;
}
// flameSelf returns the value of a frame without the frames below it.
function flameSelf(n) {
  const [s] = n.sides, inside = (i) => { let v = s.own[i]; for (let c = s.first[i]; c >= 0; c = s.next[c]) if (!n.group(s.frames[s.f[c]])) v += inside(c); return v; };
  if (!n.up) return 0;
  if (!n.group) return n.depth === 1 ? n.sum : 0;
  return (n.of[0] || []).reduce((t, i) => t + inside(i), 0);
}
function flamePath(n) {
  const path = [];
  for (; n.up; n = n.up) path.unshift(flameKey(n.frame));
  return path;
}
// flameAt returns the node of a path, or its deepest existing node.
function flameAt(root, path) {
  let at = root;
  for (const key of path) {
    const next = [...flameMap(at).values()].find((n) => flameKey(n.frame) === key);
    if (!next) break;
    at = next;
  }
  return at;
}
// flameChildren returns the frames below one, of at least this value, largest first.
const flameChildren = (n, least) => [...flameMap(n).values()].filter((c) => c.sum > 0 && c.sum >= (least || 0)).sort((a, b) => b.sum - a.sum);
const flameFound = (f) => flame.find && (f.name + "\n" + (f.full || "")).toLowerCase().includes(flame.find.toLowerCase());
const flameChange = (n) => `${n.sum >= n.before ? "+" : "−"}${flameTypes[flame.type][1](Math.abs(n.sum - n.before))}`;

// flameQuery returns the request of the live page: the chosen time and the baseline.
function flameQuery() {
  const p = live.pick, to = p ? Math.round(p.to) : state.now, from = p ? Math.round(p.from) : to - live.range * 1000, span = to - from;
  const ask = (a, b, more) => `api/flames?from=${a}&to=${Math.max(a + 1, b)}${more || ""}`;
  const source = (text) => {
    const s = text ? JSON.parse(text) : {};
    return (s.service ? `&service=${encodeURIComponent(s.service)}` : "") + (s.version ? `&version=${encodeURIComponent(s.version)}` : "");
  };
  return {key: JSON.stringify([p ? from : 0, span, flame.of, flame.against]), now: ask(from, to, source(flame.of)),
    base: !flame.against ? "" : flame.against === "before" ? ask(from - span, from, source(flame.of)) : ask(from, to, source(flame.against))};
}
// flameLoad requests the graph, at most every five seconds while nothing else is chosen.
function flameLoad() {
  const q = flameQuery(), now = Date.now();
  if (q.key === flame.query && now - flame.asked < 5000) return;
  [flame.query, flame.asked] = [q.key, now];
  const get = async (at) => {
    const r = await fetch(at);
    if (!r.ok) throw new Error(await r.text());
    return r.json();
  };
  Promise.all([get(q.now), q.base ? get(q.base) : null]).then(([data, base]) => {
    if (flame.query !== q.key) return;
    [flame.data, flame.base, flame.made] = [data, base, null];
    if (!flame.of) flame.sources = data.sources;
    if (!live.paused) draw("flames");
  }, () => { flame.asked = now - 3000; }); // the summary states that the Collector does not respond
}

function flames(view) {
  if (state.live) flameLoad();
  else [flame.data, flame.base] = [state.flames || null, state.flamesBefore || null];
  if (!flame.data || !flame.data.nodes.length && !flame.of) return state.live ? missing("code paths", "No stack is complete yet.", "A trace is counted a few seconds after its last span; send the spans around GPU work to this Collector, too.") : null;
  const made = `${flame.type} ${flame.group} ${flame.shares}`;
  if (!flame.made || flame.made.key !== made) flame.made = {key: made, root: flameTree(flame.data, flame.base)};
  const root = flame.made.root, name = flameTypes[flame.type], show = name[1];
  const set = (k, v) => () => { flame[k] = v; flame.zoom = []; flame.at = []; draw("flames"); };
  const choice = (title, k, list) => el("span", {role: "group", "aria-label": title}, ...list.map(([v, t]) => el("button", {"aria-pressed": String(flame[k] === v), "data-key": `flames ${k} ${v}`, onclick: set(k, v)}, t)));
  const sources = flame.sources.map((s) => [JSON.stringify(s), short(plain(`${s.service || "unknown service"} ${s.version || ""}`), 60)]);
  const select = (title, k, list) => el("label", {}, title + " ", el("select", {"data-key": "flames " + k, onchange: (e) => { flame[k] = e.target.value; flame.query = ""; draw("flames"); }}, ...list.map(([v, t]) => el("option", {value: v, selected: v === flame[k]}, t))));
  const out = [el("div", {class: "controls"}, choice("Quantity", "type", flameTypes.map(([t], i) => [i, t]).filter(([i]) => state.live || i === flame.type || flame.data.nodes.some((n) => n.v[i] > 0))), choice("Stacks by", "group", Object.keys(flameGroups).filter((g) => !flameTags[g] || g === flame.group || (flame.data.tags || []).some(flameTags[g])).map((g) => [g, g])),
    el("label", {class: "find"}, "find ", el("input", {type: "search", value: flame.find, "data-key": "flames find", oninput: (e) => { flame.find = e.target.value; draw("flames"); }})),
    state.live ? select("show", "of", [["", "all services"], ...sources]) : null, state.live ? select("compare with", "against", [["", "nothing"], ["before", "the time before"], ...sources]) : null,
    flame.base ? el("button", {"aria-pressed": String(flame.shares), "data-key": "flames shares", title: "scale what it is compared with to the same total", onclick: set("shares", !flame.shares)}, "as shares") : null)];
  if (!root.sum) return [...out, empty(`No ${name[0]} in this time.`, flame.type === 1 ? "Spans get energy from gpu_join, which needs the power samples of a device." : "Choose another quantity or time.")];
  out.push(flameDrawing(view, root, show, name[0]), flameSays(root, show));
  if (flame.data.merged) out.push(el("p", {class: "hint"}, `${plural(flame.data.merged, "stack")} with the smallest values are summed as (other stacks).`));
  // The table of many frames is created when it is opened.
  const list = details("flames table", "as a table", opened.has("flames table") ? table(`${name[0]} by frame`, [
    {title: "frame", left: true, of: (r) => r.frame.name, cell: (r) => el("bdi", {class: "name", title: r.frame.full || r.frame.name}, r.frame.name)}, {title: "kind", left: true, of: (r) => r.frame.kind},
    {title: "total", of: (r) => r.sum, cell: (r) => show(r.sum)}, {title: "share", of: (r) => r.sum / root.sum, cell: (r) => percent(r.sum / root.sum)}, {title: "self", of: (r) => r.self, cell: (r) => or(r.self, show)},
    ...(flame.base ? [{title: "before", of: (r) => r.before, cell: (r) => or(r.before, show)}, {title: "change", of: (r) => r.sum - r.before, cell: (r) => flameChange(r)}] : []),
    {title: "trace", cell: (r) => (isTrace(r.trace) ? traceLink(r.trace, r.trace.slice(0, 8)) : "")},
  ], flameRowsOf(root), {key: "flames " + Boolean(flame.base), sort: [flame.base ? "change" : "total", true], most: 20, filter: (r) => r.frame.name + " " + (r.frame.full || "")}) : "");
  list.addEventListener("toggle", () => { if (list.open && !list.querySelector("table")) draw("flames"); });
  out.push(list);
  return out;
}

// flameRowsOf sums frames over all positions; a recursive frame counts once.
function flameRowsOf(root) {
  const at = new Map(), around = new Set();
  const visit = (n) => {
    const key = flameKey(n.frame);
    let r = at.get(key);
    if (!r) at.set(key, r = {frame: n.frame, sum: 0, before: 0, self: 0, trace: "", most: 0});
    r.self += flameSelf(n);
    const first = !around.has(key);
    if (first) {
      r.sum += n.sum;
      r.before += n.before;
      if (n.most > r.most) [r.most, r.trace] = [n.most, n.trace];
      around.add(key);
    }
    for (const c of flameMap(n).values()) visit(c);
    if (first) around.delete(key);
  };
  for (const c of flameMap(root).values()) visit(c);
  return [...at.values()];
}

// flameClass returns a frame's color: its kind, or in a difference red for more and blue for less.
function flameClass(n) {
  if (!flame.base) return n.frame.kind === "section" || n.frame.kind === "copy" ? colorOf(n.frame.name) : "f" + n.frame.kind;
  const c = (n.sum - n.before) / Math.max(n.sum, n.before);
  return (Math.abs(c) < 0.02 ? "fsame" : c > 0 ? "fmore" : "fless") + (Math.abs(c) < 0.2 ? " s1" : Math.abs(c) > 0.6 ? " s3" : "");
}

function flameDrawing(view, root, show, title) {
  const W = widthOf(view), top = flameAt(root, flame.zoom), at = flameAt(root, flame.at), above = [];
  flame.zoom = flamePath(top);
  for (let n = top.up; n; n = n.up) above.unshift(n);
  const rects = [], add = (n, x, w, row) => {
    if (w < 0.7 || row >= flameRows || rects.length >= flameRects) return;
    rects.push({n, x, w, row});
    for (const c of flameChildren(n, 0.7 * n.sum / w)) {
      const part = w * c.sum / n.sum;
      add(c, x, part, row + 1);
      x += part;
    }
  };
  above.forEach((n, i) => rects.push({n, x: 0, w: W, row: i}));
  add(top, 0, W, above.length);
  const H = flameRow * (1 + rects.reduce((m, r) => Math.max(m, r.row), 0)), go = (n) => { flame.zoom = flame.at = flamePath(n); draw("flames"); };
  const drawn = rects.map(({n, x, w, row}) => {
    const lines = () => [n.frame.name, n.frame.full && n.frame.full !== n.frame.name ? n.frame.full : "", `${show(n.sum)}, ${percent(n.sum / root.sum)}; self ${show(flameSelf(n))}`, flame.base ? `before ${show(n.before)}, ${flameChange(n)}` : "", n.depth ? "click: zoom" : ""];
    const label = short(plain(n.frame.name), Math.floor((w - 8) / 6.2)), fits = w > 26 && wide(label) <= w - 6;
    return svg("g", {onclick: () => go(n), tip: lines}, svg("rect", {x, y: row * flameRow, width: w, height: flameRow, class: [flameClass(n), flameFound(n.frame) ? "found" : "", n === at && n.up ? "at" : ""].filter(Boolean).join(" ")}),
      fits ? svg("text", {x: x + 4, y: row * flameRow + 13, class: "label"}, label) : null);
  });
  // Keyboard: up and down along a stack, left and right among siblings, Enter zooms.
  const keys = (e) => {
    const beside = at.up ? flameChildren(at.up) : [], i = beside.indexOf(at);
    const to = {ArrowUp: at.up, ArrowDown: flameChildren(at)[0], ArrowLeft: beside[i - 1], ArrowRight: beside[i + 1]}[e.key];
    if (e.key === "Enter" || e.key === " ") { e.preventDefault(); go(at); return; }
    if (!e.key.startsWith("Arrow")) return;
    e.preventDefault();
    if (!to) return;
    flame.at = flamePath(to);
    const inside = flame.zoom.every((k, i) => k === flame.at[i]);
    if (!inside) flame.zoom = flame.at;
    draw("flames");
  };
  return svg("svg", {width: W, height: H, viewBox: `0 0 ${W} ${H}`, class: "flames" + (flame.find ? " finding-some" : ""), role: "application", tabindex: 0, "data-key": "flames drawing", onkeydown: keys,
    "aria-label": `Flame graph of ${title}, ${show(root.sum)} in all; arrow keys choose a frame, Enter zooms, Escape shows all; the table below has the same`}, ...drawn);
}

// flameSays returns a description of the chosen frame, with the trace of its slowest span.
function flameSays(root, show) {
  const n = flameAt(root, flame.at), out = [], found = {sum: 0};
  if (flame.find) {
    const visit = (c) => { if (c.up && flameFound(c.frame)) found.sum += c.sum; else for (const d of flameMap(c).values()) visit(d); };
    visit(root);
    out.push(`${show(found.sum)} (${percent(found.sum / root.sum)}) in frames whose names contain this. `);
  }
  out.push(el("strong", {}, named(n.frame.full || n.frame.name)), ` ${n.up ? n.frame.kind + ", " : ""}${show(n.sum)}, ${percent(n.sum / root.sum)}; self ${show(flameSelf(n))}`, flame.base ? `; before ${show(n.before)}, ${flameChange(n)}. ` : ". ");
  if (n.up && isTrace(n.trace)) out.push(traceLink(n.trace, `example trace ${n.trace.slice(0, 8)}`), " ");
  if (flame.zoom.length) out.push(el("button", {"data-key": "flames all", onclick: () => { flame.zoom = []; flame.at = []; draw("flames"); }}, "show all"));
  return el("p", {class: "says", role: "status", "aria-live": "polite"}, ...out);
}
