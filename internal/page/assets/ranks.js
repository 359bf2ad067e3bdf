// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// Reports on many devices, as of a job of 64 ranks: the same views, drawn small and on one scale, with one device large.

const manyDevices = 4; // beyond this number, views are drawn small
const many = () => everyDevice().length > manyDevices;

// stripes draws one thin bar for each of {name, total, parts: [[name, value, class, text]]}, on one scale.
function stripes(view, label, list) {
  const W = widthOf(view), columns = W > 900 && list.length > 24 ? 2 : 1, per = Math.ceil(list.length / columns), rowH = 15, each = W / columns;
  const L = Math.min(each * 0.3, 14 + Math.max(...list.map(({name}) => wide(short(name, 24))))), room = each - L - (columns > 1 ? 12 : 0), most = Math.max(...list.map(({total}) => total), 1e-12), parts = [];
  list.forEach(({name, total, parts: pieces}, i) => {
    const x = Math.floor(i / per) * each, y = (i % per) * rowH;
    let at = x + L;
    parts.push(text(x + L - 6, y + 11, short(name, 24), "end", "label"));
    for (const [part, v, cls, says] of pieces) {
      if (!(v > 0)) continue;
      const w = v / most * room;
      parts.push(svg("rect", {x: at, y: y + 1, width: Math.max(w, 0.5), height: rowH - 3, class: cls, tip: [`${name}: ${part}`, says, percent(v / Math.max(total, 1e-12))]}));
      at += w;
    }
  });
  return el("figure", {}, chart(label, W, per * rowH, ...parts));
}

// shown returns the device that views of small charts draw large: the reader's choice, the late rank, or the first.
function shown(list) {
  const late = (state.jobs || []).flatMap((j) => j.late || [])[0];
  return list.find(({name}) => name === profile.device) || (late && list.find(({p}) => p.rank === late.rank)) || list[0];
}

// multiples draws a small chart for each of {name, says, paths: [[d(x, y, w, h), class]]}. Clicking one chooses its device.
function multiples(view, label, list, chosen, height = 46) {
  const W = widthOf(view), across = Math.max(1, Math.min(list.length, Math.floor(W / 140))), w = W / across, H = height + 22;
  return el("figure", {}, chart(label, W, Math.ceil(list.length / across) * H, ...list.map(({name, says, paths}, i) => {
    const x = (i % across) * w, y = Math.floor(i / across) * H;
    return svg("g", {class: "mark small" + (name === chosen ? " chosen" : ""), tabindex: 0, role: "button", "aria-pressed": String(name === chosen), "aria-label": says.join(", "), "data-key": `${label} ${name}`, tip: says, ...pressed(() => { profile.device = name; draw(); })},
      svg("rect", {x, y, width: w - 6, height: H - 4, class: "frame"}), text(x + 4, y + 12, short(name, Math.floor((w - 12) / 6.4)), "start", "label"),
      ...paths.map(([d, cls]) => svg("path", {d: d(x + 3, y + 17, w - 12, height - 1), class: cls})));
  })));
}

// small steps: the four kinds of time of each step, on the scale of the longest of all.
const stepKinds = [["computing", (s) => s.parts.computing_ns, "w0"], ["exposed communication", (s) => s.parts.communication_exposed_ns, "w1"], ["exposed copies", (s) => s.parts.copying_exposed_ns, "w2"], ["idle", (s) => s.parts.idle_ns, "i9"]];
function smallSteps(view, list) {
  const most = Math.max(...list.flatMap(({d}) => d.by_step.map((s) => s.time_ns)), 1), chosen = shown(list);
  const cells = list.map(({d, name}) => {
    const lengths = d.by_step.map((s) => s.time_ns);
    return {name, says: [name, `${plural(lengths.length, "step")}, ${nanos(median(lengths))} in the median, ${nanos(Math.max(...lengths))} at most`, "click: the steps of this device"], paths: stepKinds.map(([, , cls], k) => [(x, y, w, h) => d.by_step.map((s, i) => {
      const each = w / d.by_step.length, below = stepKinds.slice(0, k).reduce((t, [, of]) => t + (of(s) || 0), 0), v = stepKinds[k][1](s) || 0;
      return v > 0 ? `M${(x + i * each).toFixed(1)} ${(y + h - (below + v) / most * h).toFixed(1)}h${Math.max(0.5, each - (each > 3 ? 1 : 0)).toFixed(1)}v${(v / most * h).toFixed(1)}h-${Math.max(0.5, each - (each > 3 ? 1 : 0)).toFixed(1)}z` : "";
    }).join(""), cls])};
  });
  return [multiples(view, `Steps of ${plural(list.length, "device")}, each up to ${nanos(most)}`, cells, chosen.name), legend(stepKinds.map(([n, , c]) => [n, c])), el("p", {class: "hint"}, `All on one scale, up to ${nanos(most)}. Below: ${chosen.name}.`)];
}

// small levels: the allocated memory of each device, on the scale of the largest.
function smallLevels(view, list) {
  const most = Math.max(...list.flatMap(({d}) => d.memory.map((m) => m.bytes)), 1), chosen = shown(list);
  const cells = list.map(({d, name}) => {
    const high = Math.max(...d.memory.map((m) => m.bytes)), from = d.memory[0].at_unix_ns, time = Math.max(1, d.memory[d.memory.length - 1].at_unix_ns - from);
    return {name, says: [name, `at most ${bytes(high)}`, "click: the memory of this device"], paths: [[(x, y, w, h) => `M${x} ${y + h}` + d.memory.map((m) => `H${(x + (m.at_unix_ns - from) / time * w).toFixed(1)}V${(y + h - m.bytes / most * h).toFixed(1)}`).join("") + `H${(x + w).toFixed(1)}V${y + h}z`, "w0"]]};
  });
  return [multiples(view, `Allocated memory of ${plural(list.length, "device")}, each up to ${bytes(most)}`, cells, chosen.name), el("p", {class: "hint"}, `All on one scale, up to ${bytes(most)}. Below: ${chosen.name}.`)];
}

// rowOf returns one row of the timeline for all streams of a profile.
function rowOf(p) {
  const streams = p.timeline.rows.filter((r) => !r.host), rows = streams.length ? streams : p.timeline.rows, name = deviceName(p, {ordinal: Math.max(0, rows[0].device)});
  return {p, r: rows[0], name: plain(name), brief: p.rank >= 0 ? "r" + p.rank : name, cells: rows.flatMap((r) => expand(p.timeline, r)).sort((a, b) => a[0] - b[0] || b[1] - a[1])};
}

// together sums rows of the same kernel, operator or collective on several devices. Values that are not summed come
// from the row of the longest one, which is named.
function together(rows, keyOf) {
  const all = new Map();
  for (const r of rows.slice().sort((a, b) => b.time_ns - a.time_ns)) {
    const k = keyOf(r), t = all.get(k);
    if (!t) {
      all.set(k, {...r, devices: 1, longest: r.device, flop_time: r.flops_per_second ? r.flops / r.flops_per_second : 0, byte_time: r.bytes_per_second ? r.bytes / r.bytes_per_second : 0, peak_time: r.peak_share ? r.time_ns : 0, peak_sum: (r.peak_share || 0) * r.time_ns});
      continue;
    }
    t.devices++;
    for (const n of ["count", "kernels", "calls", "time_ns", "alone_ns", "waiting_ns", "moving_ns", "exposed_ns", "flops", "bytes"]) if (r[n]) t[n] = (t[n] || 0) + r[n];
    t.flop_time += r.flops_per_second ? r.flops / r.flops_per_second : 0;
    t.byte_time += r.bytes_per_second ? r.bytes / r.bytes_per_second : 0;
    t.peak_time += r.peak_share ? r.time_ns : 0;
    t.peak_sum += (r.peak_share || 0) * r.time_ns;
  }
  const windows = everyDevice().reduce((t, {d}) => t + d.window_ns, 0);
  return [...all.values()].map((t) => ({...t, device: t.devices === 1 ? t.longest : `${t.devices}, longest on ${t.longest}`, share: t.time_ns / Math.max(1, windows),
    flops_per_second: t.flop_time ? t.flops / t.flop_time : 0, bytes_per_second: t.byte_time ? t.bytes / t.byte_time : 0, peak_share: t.peak_time ? t.peak_sum / t.peak_time : 0}));
}
