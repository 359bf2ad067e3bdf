// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// What is drawn, and when.

// Views by the section that they fill. A view that returns null does not apply to this page and is not shown.
const liveViews = {standsOut, devices, operations, flames, steps, ranks, requests, memory, health};
const reportViews = {comparison, profileRanks, findings, where, profileSteps, profilePath, timeline, flames, profileModules, profileRoofline, lists, communication, copies, bandwidth, profileMemory, sources};
// Views of many devices that are closed at first: a report of a job starts with which rank is late.
const foldedViews = new Set(["profilePath", "flames", "profileModules", "profileRoofline", "lists", "copies", "bandwidth", "sources"]);

let target = location.hash.slice(1); // the section that the address names, until it exists

opened.add("section " + target);

let arranged = false; // the sections of a report are in its order

function draw() {
  if (!state || live.dragging) return;
  const report = (state.profiles || []).length > 0 || state.comparison;
  if (report && !arranged) byId("findings").parentNode.prepend(...Object.keys(reportViews).map(byId));
  arranged ||= report;
  keep(() => {
    const views = Object.entries({...liveViews, ...reportViews}).map(([name, f]) => ({f, section: byId(name), view: byId(name).querySelector(".view"), wanted: name in (report ? reportViews : liveViews)}));
    for (const v of views) v.section.hidden = !v.wanted; // hidden elements have no width
    widths.clear();
    for (const v of views) widths.set(v.view, v.view.clientWidth);
    const fill = (v) => {
      const made = v.wanted ? v.f(v.view) : null;
      v.section.hidden = !made;
      const parts = (made || []).filter(Boolean), folded = report && foldedViews.has(v.section.id) && many();
      v.view.replaceChildren(...(folded && parts.length ? [details("section " + v.section.id, `of ${plural(everyDevice().length, "device")}`, el("div", {}, ...parts))] : parts));
    };
    views.forEach(fill);
    for (const v of views.filter((v) => v.view.clientWidth > widths.get(v.view) + 100)) { // its neighbor turned out to be empty
      widths.set(v.view, v.view.clientWidth);
      fill(v);
    }
  });
  if (state.host) document.title = `${state.host} · otelgpu`;
  byId("summary").textContent = (state.host ? state.host + ": " : "") + (report
    ? (state.comparison ? `What changed from ${state.comparison.names[0]} to ${state.comparison.names[1]}` : state.profiles.map((p) => p.name).slice(0, 3).join(", ") + (state.profiles.length > 3 ? ` and ${state.profiles.length - 3} more` : ""))
    : `${plural(state.devices.length, "device")}, ${plural(state.operations.length + (state.moreOperations || 0), "operation")}, ${plural(state.stepCount || 0, "step")}, ${plural(state.requests.length + (state.moreRequests || 0), "request")}` + (state.live ? `, at ${clock(state.now)}` : `; recorded until ${new Date(state.now).toLocaleString("en-GB", zone())}`) + ` ${offset(state.now)}`);
  options();
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
  if (target && byId(target) && !byId(target).hidden) {
    byId(target).scrollIntoView();
    target = "";
  }
}

addEventListener("keydown", (e) => {
  if (e.key !== "Escape") return;
  if (!tip.hidden) tip.hidden = true;
  else if (live.pick || live.cursor) unchoose();
  else if (flame.zoom.length) { flame.zoom = []; draw(); }
  else if (profile.zoom || profile.at) { profile.zoom = profile.at = null; draw(); }
  else if (live.chosen || profile.chosen) { live.chosen = profile.chosen = ""; changed(); draw(); }
});
let resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(draw, 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
document.addEventListener("visibilitychange", () => { if (!document.hidden) live.reload(); });

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

// The choices of the reader are in the address of the live page, so that it can be reloaded, bookmarked and sent.
function remember() {
  const q = asked();
  if (times.utc) q.set("zone", "utc");
  if (live.chosen) q.set("operation", live.chosen);
  for (const [key, own] of tables) {
    if (own.find) q.set("find " + key, own.find);
    if (own.sorted) q.set("sort " + key, (own.sort[1] ? "-" : "") + own.sort[0]);
  }
  history.replaceState(null, "", "?" + q + location.hash);
}
function recall() {
  const q = new URLSearchParams(location.search), from = Number(q.get("from")), to = Number(q.get("to"));
  if ([60, 300, 600].includes(Number(q.get("range")))) live.range = Number(q.get("range"));
  if (from > 0 && to > from) live.pick = {from, to};
  live.service = q.get("service") || "";
  live.chosen = q.get("operation") || "";
  times.utc = q.get("zone") === "utc";
  const own = (key) => { if (!tables.has(key)) tables.set(key, {find: ""}); return tables.get(key); };
  for (const [name, value] of q) {
    if (name.startsWith("find ")) own(name.slice(5)).find = value;
    if (name.startsWith("sort ")) Object.assign(own(name.slice(5)), {sort: [value.replace(/^-/, ""), value.startsWith("-")], sorted: true});
  }
  chosenInWords();
}

// follow draws the Collector's data whenever it announces new data.
function follow() {
  let loading = false, again = false, asking = 0;
  live.reload = async () => {
    if (loading) { again = true; return; }
    loading = true;
    try {
      const r = await fetch("api/state?" + asked());
      if (!r.ok) throw new Error(await r.text());
      state = await r.json();
      draw();
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
  state = JSON.parse(byId("state").textContent);
  draw();
} else follow();
