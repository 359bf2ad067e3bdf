// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
"use strict";
// Nodes, numbers, hover, tables. Text from the wire is only ever set as text: nothing in these files parses HTML.

const byId = (id) => document.getElementById(id);
let state = null; // the drawn State

function node(n, props, children) {
  for (const [k, v] of Object.entries(props || {})) {
    if (v === undefined || v === false || v === null) continue;
    if (k.startsWith("on")) n.addEventListener(k.slice(2), v);
    else if (k === "tip") tips.set(n, v);
    else n.setAttribute(k, v === true ? "" : v);
  }
  n.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== "").map(plain));
  return n;
}
// plain replaces control characters and characters that change the direction of text with visible ones.
const plain = (t) => (typeof t === "string" ? t.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, "\ufffd") : t);
const el = (name, props, ...children) => node(document.createElement(name), props, children);
const svg = (name, props, ...children) => node(document.createElementNS("http://www.w3.org/2000/svg", name), props, children);
// chart returns a drawing of this size in CSS pixels, so that its text is as large as other text. A drawing with
// focusable parts is a group, because assistive technology ignores the parts of an image.
function chart(label, width, height, ...children) {
  const n = svg("svg", {width, height, viewBox: `0 0 ${width} ${height}`, "aria-label": label}, ...children);
  n.setAttribute("role", n.querySelector("[tabindex]") ? "group" : "img");
  return n;
}
const text = (x, y, t, anchor, cls) => svg("text", {x, y, "text-anchor": anchor, class: cls}, t);
// wide returns the width of a chart label. Widths are remembered: asking for the font after a change causes a layout.
const pen = document.createElement("canvas").getContext("2d"), wides = new Map();
let family = "";
function wide(t, bold) {
  const key = (bold ? "b" : "r") + t;
  if (wides.size > 5000) wides.clear();
  if (!wides.has(key)) {
    pen.font = `${bold ? 600 : 400} 11px ${family ||= getComputedStyle(document.body).fontFamily}`;
    wides.set(key, pen.measureText(t).width);
  }
  return wides.get(key);
}
// under draws labels [[x, text]] below a chart of this width, without truncated, repeated or overlapping labels.
function under(labels, y, W) {
  let end = -Infinity, last;
  return labels.map(([x, t]) => {
    const half = wide(t) / 2, at = Math.max(half, Math.min(W - half - 1, x));
    if (t === last || at - half < end + 14) return null;
    end = at + half;
    last = t;
    return text(at, y, t, "middle");
  });
}
// named returns a received name: isolated, so that its direction does not affect the surrounding text, and complete on
// hover.
const named = (t) => el("bdi", {class: "name", title: t}, t);
// short truncates a name for a label.
const short = (t, n) => ([...t].length > n ? [...t].slice(0, n - 1).join("") + "…" : t);
// widths are the widths of the views before drawing, because reading them during drawing would cause a layout for each.
const widths = new Map();
const widthOf = (view) => Math.max(240, Math.floor(widths.get(view) || view.clientWidth || 640));

const sig = (x, n = 3) => Math.abs(x) >= 1e15 ? x.toExponential(n - 1) : Number(x.toPrecision(n)).toLocaleString("en", {maximumSignificantDigits: n});
const count = (n) => n.toLocaleString("en");
const percent = (x) => (x > 0 && x < 0.0005 ? "<0.1" : sig(x * 100)) + " %";
function seconds(s) {
  if (!s) return "0 s";
  const a = Math.abs(s);
  if (a >= 1) return sig(s, 4) + " s";
  if (a >= 1e-3) return sig(s * 1e3) + " ms";
  if (a >= 1e-6) return sig(s * 1e6) + " µs";
  return sig(s * 1e9) + " ns";
}
const nanos = (n) => seconds((n || 0) / 1e9);
function scaled(x, unit) {
  for (const [f, p] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (x >= f) return sig(x / f) + " " + p + unit;
  return sig(x) + " " + unit;
}
// bytes formats memory sizes, in powers of two; moved bytes use scaled(…, "B").
function bytes(b) {
  for (const [f, p] of [[2 ** 40, "T"], [2 ** 30, "G"], [2 ** 20, "M"], [2 ** 10, "K"]]) if (b >= f) return sig(b / f) + " " + p + "iB";
  return sig(b) + " B";
}
// inUnits formats times in a text of the Collector, as 853.9ms, as tables do.
const inUnits = (t) => t.replace(/(^|[\s(,])(\d+(?:\.\d+)?)(ns|µs|ms|s)(?=[\s.,;:)]|$)/g, (m, before, n, unit) => `${before}${sig(Number(n))} ${unit}`);
const sentence = (t) => (/^[a-z]+[ ,]/.test(t) ? t.charAt(0).toUpperCase() + t.slice(1) : t) + (/[.!?]$/.test(t) ? "" : ".");
const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many || one + "s"}`;
function median(list) {
  const s = list.slice().sort((a, b) => a - b), n = s.length;
  return n % 2 ? s[n >> 1] : (s[n / 2 - 1] + s[n / 2]) / 2;
}
const or = (x, f) => (x ? f(x) : "");
// Times are in the browser's time zone, or in UTC.
const times = {utc: false};
const zone = () => (times.utc ? {timeZone: "UTC"} : {});
const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB", zone());
// offset names the time zone by its distance from UTC at a time, as UTC+02:00.
function offset(ms) {
  const east = times.utc ? 0 : -new Date(ms).getTimezoneOffset(), two = (n) => String(Math.floor(n)).padStart(2, "0");
  return east ? `UTC${east < 0 ? "−" : "+"}${two(Math.abs(east) / 60)}:${two(Math.abs(east) % 60)}` : "UTC";
}

// Tooltips. The text of a node is stored separately, so that it can be shown again when the node is redrawn under the
// pointer.
const tips = new WeakMap();
const tip = byId("tip");
let pointer = null, anchorAt = null; // position of the pointer, and of the tooltip within the focused node
function tipOf(n) {
  for (; n && n !== document; n = n.parentNode) if (tips.has(n)) return n;
  return null;
}
function showTip(target, x, y) {
  const n = tipOf(target), says = n && tips.get(n), lines = typeof says === "function" ? says({x, y, node: n}) : says;
  const list = (lines || []).filter(Boolean);
  tip.hidden = !list.length;
  if (!list.length) return;
  tip.replaceChildren(...list.map((l, i) => el("div", {class: i ? undefined : "first"}, el("bdi", {}, l))));
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(4, y + 14 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 14) + "px";
}
document.addEventListener("pointermove", (e) => { pointer = [e.clientX, e.clientY]; anchorAt = null; showTip(e.target, e.clientX, e.clientY); });
document.addEventListener("pointerleave", () => { pointer = null; tip.hidden = true; });
document.addEventListener("scroll", () => { tip.hidden = true; }, true);
document.addEventListener("focusin", (e) => { if (e.target.matches(":focus-visible")) focusTip(e.target); });
document.addEventListener("focusout", () => { tip.hidden = true; });
function focusTip(n, at) {
  const b = n.getBoundingClientRect();
  anchorAt = at || [b.width / 2, b.height / 2];
  showTip(n, b.left + anchorAt[0], b.top + anchorAt[1]);
}
// tipAgain shows the tooltip for the same position after a redraw. A tooltip hidden with Escape stays hidden.
function tipAgain(shown, at) {
  tip.hidden = true;
  if (shown && at) focusTip(document.activeElement, at);
  else if (shown && pointer) showTip(document.elementFromPoint(...pointer), ...pointer);
}

const isTrace = (id) => /^[0-9a-f]{32}$/.test(id || "");
const traceOf = (id) => (state.traceUrl && isTrace(id) ? state.traceUrl.replaceAll("{traceID}", id) : "");
// traceLink shows a trace on the page, and offers to copy its ID and to open it in a trace viewer.
function traceLink(id, label) {
  if (!isTrace(id)) return el("span", {}, label);
  return el("span", {class: "trace"}, el("button", {class: "plain", "data-key": `trace ${label} ${id}`, title: "show the trace " + id, onclick: () => openTrace(id)}, label), copyButton(id, label));
}
const copyButton = (id, label) => el("button", {class: "copy", "data-key": `copy ${label} ${id}`, "aria-label": "copy trace ID " + id, title: "copy " + id, onclick: (e) => copy(id, e.currentTarget)},
  svg("svg", {width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true"}, svg("path", {d: "M1.5 3.5h6v7h-6zM4 3V1.5h6.5V9H8", class: "outline"})));
// copy writes a text to the clipboard. Browsers allow that for pages from this host or over HTTPS; other pages select
// and copy.
async function copy(t, button) {
  try {
    await navigator.clipboard.writeText(t);
  } catch {
    const field = el("textarea", {"aria-hidden": "true"});
    field.value = t;
    button.after(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    button.focus();
  }
  button.classList.add("done");
  setTimeout(() => button.classList.remove("done"), 1500);
}
// pressed makes a drawn node behave like a button.
const pressed = (f) => ({onclick: f, onkeydown: (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); f(e); } }});

function legend(entries) {
  return el("ul", {class: "legend"}, ...entries.map(([name, cls]) =>
    el("li", {}, svg("svg", {width: 11, height: 11, viewBox: "0 0 11 11", "aria-hidden": "true"}, svg("rect", {width: 11, height: 11, rx: 2, class: cls})), named(name))));
}
// empty states what is missing and the remedy.
const empty = (what, todo) => el("p", {class: "empty"}, el("strong", {}, what), " ", todo);
// A view without data returns missing: the page lists it by name, with the remedy. A file gets no more data.
const missing = (name, what, todo) => ({missing: name, content: empty(what, todo)});
// details is a part that is closed at first. A body that is a function is called when the part is opened.
function details(key, title, body) {
  const lazy = typeof body === "function", n = el("details", {open: opened.has(key), "data-key": key}, el("summary", {}, title), lazy && !opened.has(key) ? "" : lazy ? body() : body);
  n.addEventListener("toggle", () => {
    opened[n.open ? "add" : "delete"](key);
    if (lazy && n.open && n.children.length === 1) n.append(body());
  });
  return n;
}
const opened = new Set();

// Tables. The choices for a table (order, filter, whether all rows are shown) are kept by key across redraws.
const tables = new Map();
// csv returns rows as comma-separated values, numbers with 12 digits. A text that a spreadsheet would run as a formula gets an
// apostrophe.
function csv(columns, rows) {
  const cell = (v) => {
    if (v === undefined || v === null || Number.isNaN(v)) return "";
    const t = typeof v === "string" ? v.replace(/^[=+\-@\t\r]/, "'$&") : String(typeof v === "number" ? Number(v.toPrecision(12)) : v);
    return /[",\r\n]/.test(t) ? `"${t.replaceAll('"', '""')}"` : t;
  };
  return [columns.map((c) => c.title), ...rows.map((r) => columns.map((c) => c.of(r)))].map((l) => l.map(cell).join(",") + "\r\n").join("");
}
function save(name, kind, content) {
  const at = URL.createObjectURL(new Blob([content], {type: kind}));
  el("a", {href: at, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(at), 10_000);
}
// changed runs after a choice of the reader: the live page writes the choices to its address.
let changed = () => {};
// table has columns {title, of: value that rows are ordered by, cell: what is shown (default: the value), left: text, zero: 0
// is a value like others, not an unknown one}. opts:
// arrange: reorders the sorted rows; wide of a column: the class by which narrow windows hide it;
// key (makes it sortable and remembers), sort [title, down], filter: row => text, most: rows at first, chosen: row => bool,
// more: how many rows there are beyond all.
function table(caption, all, rows, opts = {}) {
  const none = (v, c) => v === undefined || v === null || v === "" || v === 0 && !c.zero || Number.isNaN(v);
  const columns = all.filter((c, i) => !i || !c.of || rows.some((r) => !none(c.of(r), c))); // omit empty columns
  const own = opts.key ? tables.get(opts.key) || {find: ""} : {find: ""};
  own.sort ||= opts.sort;
  if (opts.key) tables.set(opts.key, own);
  const box = el("div", {class: "table"});
  const fill = () => {
    let list = rows;
    if (own.find && opts.filter) list = list.filter((r) => opts.filter(r).toLowerCase().includes(own.find.toLowerCase()));
    if (own.sort) {
      const [title, down] = own.sort, by = columns.find((c) => c.title === title) || columns[0], of = by.of;
      list = list.slice().sort((a, b) => {
        const u = of(a), v = of(b);
        if (none(u, by) || none(v, by)) return none(u, by) - none(v, by); // unknown values come last
        const c = typeof u === "string" ? u.localeCompare(v) : u - v;
        return down ? -c : c;
      });
    }
    if (opts.arrange && !own.find) list = opts.arrange(list);
    const most = own.all ? list.length : opts.most || 50, left = list.length - most;
    const cls = (c) => [c.left && "left", c.wide].filter(Boolean).join(" ") || undefined;
    const head = el("tr", {}, ...columns.map((c) => el("th", {scope: "col", class: cls(c), title: c.help,
      "aria-sort": own.sort && own.sort[0] === c.title ? (own.sort[1] ? "descending" : "ascending") : undefined},
    opts.key && c.of ? el("button", {"data-key": `${opts.key} ${c.title}`, onclick: () => { own.sort = [c.title, own.sort && own.sort[0] === c.title ? !own.sort[1] : !c.left]; own.sorted = true; refill(); }}, c.title) : c.title)));
    const body = list.slice(0, most).map((r) => el("tr", {class: opts.chosen && opts.chosen(r) ? "chosen" : undefined},
      ...columns.map((c) => el("td", {class: cls(c)}, c.cell ? c.cell(r) : c.of(r)))));
    const grid = el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption, "data-key": opts.key && opts.key + " rows"},
      el("table", {}, el("caption", {}, el("span", {}, caption)), el("thead", {}, head), el("tbody", {}, ...body)));
    const foot = [];
    if (left > 0) foot.push(el("button", {"data-key": opts.key + " all", onclick: () => { own.all = true; refill(); }}, `show ${plural(left, "more row")}`));
    if (opts.more) foot.push(el("span", {}, `${plural(opts.more, "more row")} with less time ${opts.more === 1 ? "is" : "are"} not in this page`));
    if (own.find && !list.length) foot.push(el("span", {}, "no name contains this"));
    if (opts.key && rows.length) foot.push(el("button", {"data-key": opts.key + " csv", title: "save the rows, in this order", onclick: () => save(opts.key.replaceAll(" ", "-") + ".csv", "text/csv", csv(columns.filter((c) => c.of), list))}, "CSV"));
    return [grid, foot.length ? el("p", {class: "foot"}, ...foot) : null];
  };
  const refill = () => { changed(); keep(() => { for (const n of [...box.children].slice(box.firstChild === search ? 1 : 0)) n.remove(); node(box, {}, fill()); }); };
  const search = opts.filter && (rows.length > 12 || own.find) ? el("label", {class: "find"}, "find ", el("input", {type: "search", value: own.find, "data-key": opts.key + " find",
    oninput: (e) => { own.find = e.target.value; refill(); }})) : null;
  return node(box, {}, [search, ...fill()]);
}
// keep runs a function that recreates nodes below root, and restores the focus, the tooltip and scroll positions.
function keep(f, root = document) {
  const shown = !tip.hidden, where = anchorAt;
  keepFocus(f, root);
  tipAgain(shown, where);
}
function keepFocus(f, root) {
  const active = document.activeElement, inside = active && (root === document || root.contains(active));
  const key = inside && active.dataset.key, caret = active && active.selectionStart, at = new Map();
  for (const n of root.querySelectorAll(".scroll[data-key]")) if (n.scrollTop || n.scrollLeft) at.set(n.dataset.key, [n.scrollTop, n.scrollLeft]);
  f();
  if (at.size) for (const n of root.querySelectorAll(".scroll[data-key]")) if (at.has(n.dataset.key)) [n.scrollTop, n.scrollLeft] = at.get(n.dataset.key);
  if (!key || document.activeElement.dataset.key === key) return;
  const again = [...root.querySelectorAll("[data-key]")].find((n) => n.dataset.key === key);
  if (!again) return;
  again.focus({preventScroll: true});
  if (again.type === "search") again.setSelectionRange(caret, caret);
}
