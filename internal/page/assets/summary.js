// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// The headline and the findings.

// headline is the first row: what the GPUs did in the shown or selected time, in numbers.
function headline() {
  const bins = state.bins || [], sum = (k) => bins.reduce((t, b) => t + (b[k] || 0), 0), spans = sum("spans");
  if (!spans && !state.devices.length) return null;
  const power = totalPower(), held = meanOf(state.devices.flatMap((d) => shownCells(d, "throttled"))), used = sum("energy");
  const before = state.before || {}, loop = loopRate(), metered = sum("metered"), items = sum("items");
  const tiles = [{name: "GPU spans", value: count(spans), says: `in ${seconds((state.to - state.from) / 1000)}`}];
  if (power.joules) tiles.push({name: "Energy", value: scaled(power.joules, "J"), says: used ? `${percent(Math.min(1, used / power.joules))} of it in spans` : "of the devices"});
  else if (used) tiles.push({name: "Energy", value: scaled(used, "J"), says: "of spans"});
  if (power.watts) tiles.push({name: "Power", value: scaled(power.watts, "W"), says: `mean of ${plural(state.devices.length, "device")}`, line: power.line, than: change(power.watts, before.power, 0)});
  if (held !== undefined) tiles.push({name: "Throttled", value: percent(held), says: held ? "of the time, mean of devices" : "no clock was throttled", warns: held > 0.005, than: changeOfShare(held, before.throttled)});
  if (loop) tiles.push({name: "Steps per second", value: sig(loop.rate), says: [loop.whose, `mean step ${seconds(loop.mean)}`].filter(Boolean).join(", "), than: loop.key === before.loop && change(loop.rate, before.stepRate, 1)});
  if (metered && items) tiles.push({name: `J per ${itemName()}`, value: sig(metered / items), says: `${plural(sum("requests"), "request")}, ${scaled(sum("used"), "J")}`, than: change(metered / items, before.perItem, -1)});
  const slow = slowest();
  if (slow) tiles.push({name: "Slowest " + slow.kind, value: seconds(slow.time), says: slow.says, trace: slow.trace});
  return [el("div", {class: "tiles"}, ...tiles.map((t) => {
    const [number, ...unit] = t.value.split(" ");
    return el("div", {class: t.warns ? "tile warns" : "tile"}, el("span", {class: "dim"}, t.name),
      el("span", {class: "value"}, el("strong", {}, number), unit.length ? " " + unit.join(" ") : ""), t.line || "",
      el("span", {class: "dim says"}, t.trace ? el("button", {class: "plain", "data-key": "slowest", onclick: () => openTrace(t.trace)}, t.says) : named(t.says)), t.than || "");
  }))];
}
// change compares a value with the one before; better is 1 if more is better, -1 if less is, otherwise 0. Less than 2 % is
// within the errors of both.
function change(now, before, better) {
  if (!(before > 0)) return null;
  const d = now / before - 1;
  return compared(Math.abs(d) < 0.02, d, percent(Math.abs(d)), better);
}
const changeOfShare = (now, before) => (before === undefined ? null : compared(Math.abs(now - before) < 0.005, now - before, sig(Math.abs(now - before) * 100) + " points", -1));
function compared(same, d, size, better) {
  const than = `than the ${seconds(state.before.seconds)} before`, word = d * better > 0 ? "better" : d * better < 0 ? "worse" : d > 0 ? "more" : "less";
  return el("span", {class: "compared " + (word === "worse" && !same ? "greater" : "dim"), title: than}, same ? "≈ unchanged" : `${d > 0 ? "▲" : "▼"} ${size} ${word} `, same ? "" : el("span", {class: "dim"}, than));
}
const itemName = () => (state.itemType || "item").replace(/s$/, "");

// shownCells returns the cells of a device in the selection, or all.
function shownCells(d, key) {
  const list = d[key] || [];
  return live.pick ? list.filter((_, i) => (d.start + i * d.step) * 1000 >= live.pick.from - 999 * d.step && (d.start + i * d.step) * 1000 < live.pick.to) : list;
}
// totalPower sums the power of the devices, and draws it over time.
function totalPower() {
  const lists = state.devices.map((d) => ({d, cells: shownCells(d, "power")})).filter(({cells}) => cells.some((v) => v !== null));
  if (!lists.length) return {};
  let joules = 0, watts = 0;
  for (const {d, cells} of lists) {
    const mean = meanOf(cells);
    watts += mean;
    joules += mean * cells.filter((v) => v !== null).length * d.step;
  }
  const n = Math.max(...lists.map(({cells}) => cells.length));
  const line = Array.from({length: n}, (_, i) => meanOf(lists.map(({cells}) => cells[i] ?? null)));
  return {watts, joules, line: spark(line)};
}
function spark(values) {
  const most = Math.max(...values.map((v) => v || 0), 1e-9), W = 72, H = 20, known = values.map((v, i) => [i, v]).filter(([, v]) => v !== undefined);
  if (known.length < 3) return null;
  return svg("svg", {width: W, height: H, viewBox: `0 0 ${W} ${H}`, class: "spark", "aria-hidden": "true"},
    svg("polyline", {points: known.map(([i, v]) => `${(i / (values.length - 1) * W).toFixed(1)},${(H - 1 - v / most * (H - 2)).toFixed(1)}`).join(" "), class: "ink"}));
}
// loopRate returns the steps per second of the loop with the most steps, and their mean length.
function loopRate() {
  const loops = new Map();
  for (const s of state.steps) {
    const k = loopOf(s) + "\n" + s.rank, l = loops.get(k) || {key: k, whose: whose(s), steps: 0, from: Infinity, to: 0, all: []};
    l.steps += s.count || 1;
    l.from = Math.min(l.from, stepStart(s));
    l.to = Math.max(l.to, s.t);
    l.all.push(s);
    loops.set(k, l);
  }
  const l = [...loops.values()].sort((a, b) => b.steps - a.steps)[0];
  return l && l.to > l.from ? {...l, rate: l.steps / (l.to - l.from) * 1000, mean: meanStep(l.all)} : null;
}
// loopOf identifies the loop of a job. whose names the service and the job of a step, if the shown steps are of several.
const loopOf = (s) => [s.service, s.name, s.job].join("\n");
let several = {of: null};
function whose(s) {
  const differ = (k) => state.steps.some((x) => x[k] !== state.steps[0][k]);
  if (several.of !== state.steps) several = {of: state.steps, service: differ("service"), job: differ("job")};
  return [several.service && s.service, several.job && s.job && "job " + s.job].filter(Boolean).join(", ");
}
const stepStart = (s) => (s.count > 1 && s.start ? s.start : s.t - s.duration * 1000);
// slowest returns the slowest request, otherwise the slowest step.
function slowest() {
  const q = (state.points || []).reduce((a, b) => (a && a.duration >= b.duration ? a : b), null);
  if (q) return {kind: "request", time: q.duration, trace: q.trace, says: "trace " + q.trace.slice(0, 8)};
  const s = (state.longest || [])[0];
  return s ? {kind: "step", time: s.duration, trace: s.trace, says: [`${s.name} ${s.index}`, s.rank >= 0 && "rank " + s.rank, whose(s)].filter(Boolean).join(", ")} : null;
}

const causeOf = {late_rank: "waits", hung_rank: "waits", throttle: "hot", pageable_copies: "copies", loader: "host", launch_bound: "host", host_work: "host", healthy: "fine"};
// card draws a finding: kind, one sentence, cost, remedy and folded evidence. f: {kind, whose, says, gain, of, remedy, evidence, links, key}.
function card(f) {
  return el("li", {class: `card ${causeOf[f.kind] || ""}`},
    el("h3", {}, f.kind.replaceAll("_", " "), f.whose ? el("span", {class: "dim"}, el("bdi", {}, f.whose)) : ""),
    el("p", {class: "one"}, el("bdi", {}, sentence(inUnits(f.says)))),
    f.gain > 0 ? el("p", {class: "gain"}, f.of > 0 ? gauge(f.gain / f.of) : "", f.saves || `saves at most ${nanos(f.gain)}` + (f.of > 0 ? ` of ${nanos(f.of)} (${percent(f.gain / f.of)})` : "")) : "",
    f.remedy ? el("p", {}, el("span", {class: "dim"}, "Try: "), sentence(inUnits(f.remedy))) : "",
    f.evidence ? details("evidence " + f.key, "Evidence", typeof f.evidence === "string" ? el("p", {}, el("bdi", {}, sentence(inUnits(f.evidence)))) : f.evidence) : "",
    f.links && f.links.length ? el("p", {class: "links"}, ...f.links) : "");
}
const evidence = (v) => [v.evidence, v.kind !== "healthy" && v.threshold ? `threshold ${v.threshold >= 1 ? sig(v.threshold) + " times" : percent(v.threshold)}, certainty ${v.certainty}` : ""].filter(Boolean).join("; ");

// What stands out?
function standsOut() {
  const list = state.findings;
  if (!list.length) return missing("findings", "Nothing stands out:", "no device reports an error, no rank is late, no request takes twice the median, no operation ran with a throttled clock, no memory is almost full, no device is starved, and no copy moves through pageable memory.");
  const make = (f, i) => {
    const o = state.operations.find((o) => o.name === f.subject), links = [];
    if (o) links.push(el("button", {class: "plain", "data-key": "where " + i, onclick: () => { live.chosen = keyOf(o); changed(); draw(); byId("operations").scrollIntoView({block: "nearest"}); }}, "Show operation"));
    if (f.from) links.push(el("button", {class: "plain", "data-key": "when " + i, onclick: () => choose(f.from - 500, f.to + 500)}, "Show time"));
    if (isTrace(f.trace)) links.push(traceLink(f.trace, "Show trace"));
    return card({kind: f.kind, says: f.chain.join(", then "), gain: f.gain_ns, of: (state.to - state.from) * 1e6, remedy: f.remedy, evidence: evidence(f), links, key: f.kind + f.subject});
  };
  const some = list.slice(0, 4), rest = list.slice(4);
  return [el("ul", {class: "cards"}, ...some.map(make)), rest.length ? details("findings", plural(rest.length, "more finding"), el("ul", {class: "cards"}, ...rest.map(make))) : null];
}
