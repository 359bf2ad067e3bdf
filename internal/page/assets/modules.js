// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// Modules and annotations of the host as a tree: layers that differ in numbers only are one row, which opens.

const moduleDepth = 3; // to which the tree is open at first
profile.open = new Map(); // rows that the reader opened or closed, by key

// moduleTree gives each row its path, and sums rows of the same path on several devices.
function moduleTree(list) {
  const all = new Map();
  for (const {d, name} of list) {
    const path = [];
    for (const m of d.modules) {
      const depth = m.depth || 0;
      path.length = depth;
      path.push(m.name);
      const key = path.join(" / "), t = all.get(key);
      if (!t) all.set(key, {...m, depth, key, parent: path.slice(0, -1).join(" / "), device: name, devices: 1});
      else for (const n of ["calls", "kernels", "time_ns", "backward_ns", "idle_ns", "flops"]) t[n] = (t[n] || 0) + (m[n] || 0);
    }
  }
  const rows = [...all.values()], below = new Map();
  for (const r of rows) below.set(r.parent, [...(below.get(r.parent) || []), r]);
  const out = [], put = (parent, depth) => {
    if (depth > 200) return;
    for (const r of below.get(parent) || []) if (r.depth === depth) { r.inner = (below.get(r.key) || []).some((x) => x.depth === depth + 1); out.push(r); put(r.key, depth + 1); }
  };
  put("", 0);
  return out;
}

// Which module takes the time?
function profileModules() {
  const list = everyDevice().filter(({d}) => (d.modules || []).length);
  if (!list.length) return null;
  const groups = many() ? [{name: plural(list.length, "device"), rows: moduleTree(list), list}] : list.map((x) => ({name: x.name, rows: moduleTree([x]), list: [x]}));
  return groups.flatMap(({name, rows, list: of}) => {
    const window = of.reduce((t, {d}) => t + d.window_ns, 0), shown = [], isOpen = (r) => profile.open.get(`${name} ${r.key}`) ?? (r.depth < moduleDepth);
    let closed = Infinity;
    for (const r of rows) {
      if (r.depth > closed) continue;
      closed = r.inner && !isOpen(r) ? r.depth : Infinity;
      shown.push(r);
      if ((r.each || []).length && profile.open.get(`${name} ${r.key} each`)) for (const e of r.each) shown.push({...e, depth: r.depth + 1, single: true});
    }
    const toggle = (r, key, open, t) => el("button", {class: "plain", "data-key": `${name} ${key}`, "aria-expanded": String(open), onclick: () => { profile.open.set(`${name} ${key}`, !open); draw(); }}, t);
    const cell = (r) => {
      const each = !!profile.open.get(`${name} ${r.key} each`);
      return el("span", {}, "\u00a0".repeat(3 * r.depth), r.inner ? toggle(r, r.key, isOpen(r), (isOpen(r) ? "▾ " : "▸ ") + r.name) : named(r.name), r.instances > 1 && r.each ? [" ", toggle(r, r.key + " each", each, each ? "hide each" : `× ${r.instances}`)] : "");
    };
    const share = (r) => (r.time_ns + r.idle_ns) / window, more = of.reduce((t, {d}) => t + (d.moreModules || 0), 0);
    return [table(`Modules and annotations of ${name}: what ran on the device from within them, and how long it was idle before that`, [{title: "module or annotation", left: true, cell}, {title: "calls", cell: (r) => or(r.calls, count)}, {title: "GPU time", of: (r) => r.time_ns, cell: (r) => el("span", {}, nanos(r.time_ns), gauge(r.time_ns / window))},
      {title: "of it backward", of: (r) => r.backward_ns, cell: (r) => or(r.backward_ns, nanos)}, {title: "idle before", of: (r) => r.idle_ns, cell: (r) => nanos(r.idle_ns)}, {title: "of window", help: "GPU time and idle time; rows at the left edge add up to all", of: share, cell: (r) => percent(share(r))},
      {title: "FLOP/s", help: "over its GPU time", of: (r) => r.flops, cell: (r) => or(r.flops && r.time_ns, () => scaled(r.flops / r.time_ns * 1e9, "FLOP/s"))}], shown, {most: 1000}),
    more ? el("p", {class: "hint"}, `${plural(more, "more row")} with less than 0.1 % of the window ${more === 1 ? "is" : "are"} part of those around ${more === 1 ? "it" : "them"}.`) : null];
  });
}
