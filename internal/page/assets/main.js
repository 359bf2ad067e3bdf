// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// What is drawn, and when.

// Views by the section that they fill, in the order of a page with steps. A view that returns null does not apply and is
// not shown; one without data names what is missing.
const liveViews = {headline, standsOut, when, goodput, operations, requests, flames, health, trace: waterfall};
const reportViews = {profileRanks, comparison, findings, hostWork, where, profileSteps, profilePath, timeline, flames, profileModules, profileRoofline, lists, communication, copies, bandwidth, profileMemory, sources};
// Views of many devices that are closed at first: a report of a job starts with which rank is late.
const foldedViews = new Set(["profilePath", "flames", "profileModules", "profileRoofline", "lists", "copies", "bandwidth", "sources", "profileSteps", "communication", "profileMemory", "where"]);

let target = ""; // the section that the address names, until it exists
let order = ""; // of the sections

const isReport = () => (state.profiles || []).length > 0 || !!state.comparison;
function arrange() {
  const names = isReport() ? Object.keys(reportViews) : Object.keys(liveViews);
  if (!isReport() && !state.steps.length && state.requests.length) names.splice(2, 0, names.splice(names.indexOf("requests"), 1)[0]);
  if (names.join() === order) return;
  order = names.join();
  byId("headline").parentNode.prepend(...names.map(byId));
}

// A section is drawn in a task of its own, the visible ones first, so that no task is long.
const pending = new Set(), absent = new Map(), seen = new Set();
const visible = new IntersectionObserver((list) => {
  for (const {target: n, isIntersecting} of list) {
    seen[isIntersecting ? "add" : "delete"](n.id);
    if (isIntersecting && stale.has(n.id)) { pending.add(n.id); soon(); }
  }
}, {rootMargin: "200px"});
const stale = new Map(); // sections that are out of sight and have newer data, since when
let scheduled = false;
const channel = new MessageChannel();
channel.port1.onmessage = () => { scheduled = false; work(); };
function soon() {
  if (scheduled || !pending.size) return;
  scheduled = true;
  channel.port2.postMessage(0);
}

// draw draws the named sections now. Without names it draws all as soon as possible, visible ones first.
function draw(...names) {
  if (!state || live.dragging) return;
  prepare();
  for (const n of names.length ? names : order.split(",")) pending.add(n);
  for (const n of names) drawOne(n);
  if (names.length) work();
  else soon();
}
// update draws what new data change. A section that is out of sight is drawn when it is seen, at least every 5 s.
function update() {
  if (!state || live.dragging) return;
  prepare();
  for (const n of order.split(",")) {
    if (seen.has(n) || byId(n).hidden || !drawnOnce.has(n) || performance.now() - (stale.get(n) ?? performance.now()) > 5000) pending.add(n);
    else if (!stale.has(n)) stale.set(n, performance.now());
  }
  soon();
}
const drawnOnce = new Set();
function prepare() {
  arrange();
  head();
  const main = document.querySelector("main").clientWidth;
  if (main !== widths.get("main")) { widths.clear(); widths.set("main", main); }
}
// work draws a pending section.
function work() {
  const name = [...pending].find((n) => seen.has(n)) || [...pending][0];
  if (name) drawOne(name);
  if (pending.size) return soon();
  others();
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
  if (target && byId(target) && !byId(target).hidden) {
    byId(target).scrollIntoView();
    target = "";
  }
}
function drawOne(name) {
  pending.delete(name);
  stale.delete(name);
  drawnOnce.add(name);
  fill(name);
}
function fill(name) {
  const section = byId(name), view = section.querySelector(".view"), f = (isReport() ? reportViews : liveViews)[name];
  if (!f) return;
  if (!widths.has(view)) { // of the first drawing, or after a change of the window
    section.hidden = false;
    widths.set(view, view.clientWidth);
  }
  const made = f(view);
  absent.delete(name);
  if (made && made.missing) absent.set(name, made);
  section.hidden = !made || !!made.missing;
  const parts = Array.isArray(made) ? made.filter(Boolean) : [], folded = isReport() && foldedViews.has(name) && many() && parts.length;
  keep(() => view.replaceChildren(...(folded ? [details("section " + name, section.querySelector("h2").textContent, el("div", {}, ...parts))] : parts)), section);
  section.classList.toggle("folded", !!folded);
  visible.observe(section);
}
// others lists the sections without data in one line.
let listed = "";
function others() {
  const list = state.live ? [...absent.values()] : [], now = list.map((m) => m.missing + m.content.textContent).join();
  if (now === listed) return;
  listed = now;
  byId("none").hidden = !list.length;
  byId("none").querySelector(".view").replaceChildren(...list.map((m) => details("none " + m.missing, m.missing, m.content)));
}

// head writes the title and the first line.
function head() {
  const report = isReport();
  if (state.host) document.title = `${state.host} · otelgpu`;
  byId("summary").textContent = (state.host ? state.host + ": " : "") + (report
    ? (state.comparison ? `What changed from ${state.comparison.names[0]} to ${state.comparison.names[1]}` : state.profiles.map((p) => p.name).slice(0, 3).join(", ") + (state.profiles.length > 3 ? ` and ${state.profiles.length - 3} more` : ""))
    : `${plural(state.devices.length, "device")}, ${plural(state.operations.length + (state.moreOperations || 0), "operation")}, ${plural(state.stepCount || 0, "step")}, ${plural((state.bins || []).reduce((t, b) => t + (b.requests || 0), 0), "request")}` + (state.live ? `, at ${clock(state.now)}` : `; recorded until ${new Date(state.now).toLocaleString("en-GB", zone())}`) + ` ${offset(state.now)}`);
  options();
}

addEventListener("keydown", (e) => {
  if (e.key !== "Escape") return;
  if (!tip.hidden) tip.hidden = true;
  else if (live.trace) closeTrace();
  else if (live.pick || live.cursor) unchoose();
  else if (flame.zoom.length) { flame.zoom = []; draw(); }
  else if (profile.zoom || profile.at) { profile.zoom = profile.at = null; draw(); }
  else if (live.chosen || profile.chosen) { live.chosen = profile.chosen = ""; changed(); draw(); }
});
let resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => draw(), 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
document.addEventListener("visibilitychange", () => { if (!document.hidden && state?.live) live.reload(); });

function controls() {
  const button = (t, on, f, help) => el("button", {"aria-pressed": String(on), "data-key": "control " + t, title: help, onclick: () => keep(() => { f(); controls(); })}, t);
  byId("range").replaceChildren(...[[60, "1 min"], [300, "5 min"], [600, "10 min"]].map(([s, t]) => button(t, live.range === s, () => { live.range = s; changed(); live.reload(); }, `show the last ${t}`)),
    button("pause", live.paused, () => { live.paused = !live.paused; if (!live.paused) live.reload(); }, "pause the view; spans are still received"));
}

// asked returns the query of the shown state.
function asked() {
  const q = new URLSearchParams({range: live.range});
  if (live.pick) { q.set("from", Math.round(live.pick.from)); q.set("to", Math.round(live.pick.to)); }
  if (live.service) q.set("service", live.service);
  return q;
}

let offered; // what options drew: an open list must not be redrawn
function options() {
  const services = state.services || [], now = JSON.stringify([services, live.service, times.utc, state.live && String(asked())]);
  if (now === offered) return;
  offered = now;
  const list = live.service && !services.includes(live.service) ? [...services, live.service] : services;
  const choice = (value, t) => el("option", {value, selected: value === live.service}, t);
  byId("options").replaceChildren(...[
    state.live && list.length > 1 || live.service ? el("label", {}, "service ", el("select", {"data-key": "service", title: "operations, steps, ranks and requests of one service",
      onchange: (e) => { live.service = e.target.value; changed(); live.reload(); }}, choice("", "all"), ...list.map((s) => choice(s, plain(s))))) : null,
    el("button", {"aria-pressed": String(times.utc), "data-key": "utc", title: "show times in UTC", onclick: () => { times.utc = !times.utc; changed(); chosenInWords(); draw(); }}, "UTC"),
    state.live ? el("a", {href: "report.html?" + asked(), download: "", "data-key": "save", title: "save this page as one file"}, "save") : null,
    state.live ? el("a", {href: "api/state?" + asked(), download: "otelgpu.json", "data-key": "json", title: "save the data of this page"}, "JSON") : null,
  ].filter(Boolean));
}

// The choices of the reader are in the address of the page, after #, so that it can be reloaded, bookmarked and sent. A
// name alone is a section.
function remember() {
  const q = new URLSearchParams();
  if (live.range !== 60 && state?.live) q.set("range", live.range);
  if (live.pick) { q.set("from", Math.round(live.pick.from)); q.set("to", Math.round(live.pick.to)); }
  if (live.service) q.set("service", live.service);
  if (times.utc) q.set("zone", "utc");
  if (live.chosen) q.set("operation", live.chosen);
  if (live.trace) q.set("trace", live.trace);
  for (const [key, own] of tables) {
    if (own.find) q.set("find " + key, own.find);
    if (own.sorted) q.set("sort " + key, (own.sort[1] ? "-" : "") + own.sort[0]);
  }
  written = String(q) ? "#" + q : "";
  history.replaceState(null, "", location.pathname + location.search + written);
}
let written = null; // what remember wrote
function recall() {
  const text = location.hash.slice(1), q = new URLSearchParams(text.includes("=") ? text : ""), from = Number(q.get("from")), to = Number(q.get("to"));
  target = text.includes("=") ? "" : text;
  if (target) opened.add("section " + target);
  live.range = [60, 300, 600].includes(Number(q.get("range"))) ? Number(q.get("range")) : 60;
  live.pick = from > 0 && to > from ? {from, to} : null;
  live.service = q.get("service") || "";
  live.chosen = q.get("operation") || "";
  live.trace = isTrace(q.get("trace")) ? q.get("trace") : "";
  times.utc = q.get("zone") === "utc";
  const own = (key) => { if (!tables.has(key)) tables.set(key, {find: ""}); return tables.get(key); };
  for (const [name, value] of q) {
    if (name.startsWith("find ")) own(name.slice(5)).find = value;
    if (name.startsWith("sort ")) Object.assign(own(name.slice(5)), {sort: [value.replace(/^-/, ""), value.startsWith("-")], sorted: true});
  }
  chosenInWords();
}
addEventListener("hashchange", () => {
  if (location.hash === written) return;
  recall();
  if (live.trace) loadTrace();
  live.reload();
});

// follow draws the Collector's data whenever it announces new data.
function follow() {
  let loading = false, again = false, asking = 0;
  live.reload = async () => {
    if (loading) { again = true; return; }
    loading = true;
    try {
      const q = asked(), known = state && state.asked === String(q) ? state : null;
      if (known) q.set("have", known.update);
      const r = await fetch("api/state?" + q);
      if (!r.ok) throw new Error(await r.text());
      const now = patched(known, await r.json());
      if (now) {
        now.asked = String(asked());
        const first = !state;
        state = now;
        if (first || !known) draw();
        else update();
        if (first && live.trace) loadTrace();
      }
    } catch (e) {
      byId("summary").textContent = "The Collector does not answer: " + e.message;
    }
    loading = false;
    if (again) { again = false; live.reload(); }
  };
  const wanted = () => { if (!live.paused && !document.hidden && !live.dragging) live.reload(); };
  recall();
  changed = remember;
  controls();
  live.reload();
  const source = new EventSource("api/events");
  source.addEventListener("state", wanted);
  source.addEventListener("error", () => {
    byId("summary").textContent = "The Collector does not respond; the page continues when it does.";
    if (source.readyState === EventSource.CLOSED && !asking) asking = setInterval(wanted, 5000); // too many browsers for events: poll
  });
}

if (byId("state")) {
  const whole = JSON.parse(byId("state").textContent);
  state = whole;
  live.range = state.range || 60;
  live.reload = () => { state = selected(whole, live.pick); draw(); };
  recall();
  changed = remember;
  live.reload();
  if (live.trace) loadTrace();
} else follow();
