#!/usr/bin/env node
// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Perfetto's trace processor, compiled to WebAssembly, with the part of trace_processor_shell's interface that the
// tests use:
//
//	trace_processor.mjs -q QUERIES.sql TRACE
//
// TRACE_PROCESSOR_WASM is a folder with trace_processor.wasm, engine_bundle.node.js and engine.mjs of Perfetto's UI.

import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { runInThisContext } from "node:vm";

const [flag, queries, trace] = process.argv.slice(2);
const folder = process.env.TRACE_PROCESSOR_WASM;
if (flag !== "-q" || !trace || !folder) {
  console.error("usage: TRACE_PROCESSOR_WASM=FOLDER trace_processor.mjs -q QUERIES.sql TRACE");
  process.exit(2);
}

// The bundle is made for a browser worker, so it gets the worker's globals, the module, and an output for its bridge.
const warn = console.warn;
console.warn = (...a) => /Unexpected QueryResult field|unsupported syscall|Loading trace/.test(a[0]) || warn(...a);
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function () {};
globalThis.location = { href: pathToFileURL(folder).href + "/" };
globalThis.module_ = readFileSync(join(folder, "trace_processor.wasm"));
const edits = [
  ["this.useMemory64 = hasMemory64Support();", "this.useMemory64 = false;"],
  ["locateFile: (s) => s,", "locateFile: (s) => s, wasmBinary: globalThis.module_,"],
  ["new wasm_bridge_1.WasmBridge();", "globalThis.bridge = new wasm_bridge_1.WasmBridge();"],
];
let bundle = readFileSync(join(folder, "engine_bundle.node.js"), "utf8");
for (const [from, to] of edits) {
  if (!bundle.includes(from)) throw new Error(`engine_bundle.node.js is of another version: no ${from}`);
  bundle = bundle.replace(from, to);
}
runInThisContext(bundle);
while (!globalThis.bridge.reqBufferAddr) await new Promise((r) => setTimeout(r, 10));

const { EngineBase } = await import(pathToFileURL(join(folder, "engine.mjs")).href);
class Engine extends EngineBase {
  mode = "WASM";
  id = "wasm";
  constructor(port) {
    super();
    this.port = port;
    port.onmessage = (m) => this.onRpcResponseBytes(m.data);
  }
  rpcSendRequestBytes(data) {
    this.port.postMessage(data);
  }
}
const channel = new MessageChannel();
globalThis.bridge.initialize(channel.port1);
const engine = new Engine(channel.port2);

const file = openSync(trace);
const chunk = Buffer.alloc(16 << 20);
for (let n; (n = readSync(file, chunk, 0, chunk.length)) > 0; ) await engine.parse(new Uint8Array(chunk.subarray(0, n)));
closeSync(file);
await engine.notifyEof();

const cell = (v) => (v === null ? '"[NULL]"' : typeof v === "string" ? `"${v.replaceAll('"', '""')}"` : String(v));
for (const q of readFileSync(queries, "utf8").split(";").filter((s) => s.trim())) {
  const result = await engine.query(q);
  if (result.error()) throw new Error(result.error());
  const columns = result.columns();
  console.log(columns.map(cell).join(","));
  for (const row = result.iter({}); row.valid(); row.next()) console.log(columns.map((c) => cell(row.get(c))).join(","));
  console.log();
}
process.exit(0);
