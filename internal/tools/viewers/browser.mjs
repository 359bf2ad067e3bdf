#!/usr/bin/env node
// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Opens traces in speedscope and in Catapult (chrome://tracing, as the Go distribution holds it) in a headless browser
// and prints their errors:
//
//	browser.mjs TRACE…
//
// The working folder has the npm packages puppeteer-core and speedscope; CHROMIUM is the browser (default chromium).

import { execFileSync } from "node:child_process";
import { createReadStream, existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";

const puppeteer = createRequire(join(process.cwd(), "x.js"))("puppeteer-core");
const traces = process.argv.slice(2);
const text = (command, ...args) => execFileSync(command, args, { encoding: "utf8" }).trim();
const speedscope = join(process.cwd(), "node_modules/speedscope/dist/release");
const catapult = join(text("go", "env", "GOROOT"), "src/internal/trace/traceviewer/static");
const page = '<script src="webcomponents.min.js"></script><link rel="import" href="trace_viewer_full.html">';
const types = { html: "text/html", js: "text/javascript", css: "text/css", wasm: "application/wasm" };

const server = createServer((request, response) => {
  const [, root, ...rest] = decodeURIComponent(request.url.split("?")[0]).split("/");
  const name = rest.join("/") || "index.html";
  response.setHeader("Content-Type", types[name.split(".").pop()] ?? "application/octet-stream");
  if (root === "catapult" && name === "index.html") return response.end(page);
  const file = { trace: traces[parseInt(name)], speedscope: join(speedscope, name), catapult: join(catapult, name) }[root];
  if (!file || !existsSync(file)) return response.writeHead(404).end();
  createReadStream(file).pipe(response);
}).listen(0, "127.0.0.1");
await new Promise((r) => server.on("listening", r));
const base = `http://127.0.0.1:${server.address().port}`;
const browser = await puppeteer.launch({
  executablePath: text("which", process.env.CHROMIUM ?? "chromium"),
  args: ["--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader"],
  protocolTimeout: 600_000,
});

async function inSpeedscope(i) {
  const tab = await browser.newPage();
  const faults = [];
  tab.on("pageerror", (e) => faults.push(e.message));
  tab.on("console", (m) => m.type() === "warn" && !/GL Driver/.test(m.text()) && faults.push(m.text().replaceAll(/ \{.*?\}"/g, '"')));
  await tab.goto(`${base}/speedscope/#profileURL=${encodeURIComponent(`${base}/trace/${i}.json`)}`);
  await tab
    .waitForFunction(() => /Time Order|Something went wrong/.test(document.body.innerText), { timeout: 120_000 })
    .catch((e) => faults.push(e.message));
  if (/Something went wrong/.test(await tab.evaluate(() => document.body.innerText))) faults.push("cannot be opened");
  await tab.close();
  return faults;
}

async function inCatapult(i) {
  const tab = await browser.newPage();
  await tab.goto(`${base}/catapult/`);
  await tab.waitForFunction(() => globalThis.tr?.importer?.Import);
  const seen = await tab.evaluate(async (url) => {
    const trace = await (await fetch(url)).text();
    const model = new tr.Model();
    new tr.importer.Import(model, new tr.importer.ImportOptions()).importTraces([trace]);
    const seen = { faults: model.importWarnings.map((w) => w.message), X: 0, f: model.flowEvents.length, C: 0 };
    for (const process of model.getAllProcesses()) {
      for (const thread of Object.values(process.threads)) for (const s of thread.sliceGroup.slices) seen.X += !s.didNotFinish && s.category !== "event";
      for (const counter of Object.values(process.counters)) for (const s of counter.series) seen.C += s.samples.length;
    }
    return seen;
  }, `${base}/trace/${i}.json`);
  await tab.close();
  const events = JSON.parse(readFileSync(traces[i])).traceEvents;
  for (const phase of ["X", "f", "C"]) {
    const n = events.filter((e) => e.ph === phase).length;
    if (seen[phase] !== n) seen.faults.push(`${seen[phase]} events of phase ${phase}, the file has ${n}`);
  }
  return seen.faults;
}

let total = 0;
for (let i = 0; i < traces.length; i++) {
  for (const [viewer, open] of Object.entries({ speedscope: inSpeedscope, catapult: inCatapult })) {
    const faults = await open(i);
    total += faults.length;
    console.log(`${faults.length ? "FAULTS" : "ok"} ${viewer} ${traces[i]}`, faults.slice(0, 3));
  }
}
await browser.close();
server.close();
process.exit(total ? 1 : 0);
