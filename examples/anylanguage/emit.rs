// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//! A Rust program that sends the span of a piece of GPU work as OTLP/JSON over HTTP, with the standard library only:
//!
//!     rustc -O emit.rs && ./emit 127.0.0.1:4318
//!
//! A service uses the crates opentelemetry and opentelemetry-otlp instead, with the same attributes and the times in
//! `with_start_time` and `with_end_time`. The times of the work are made up; take them from two CUDA events
//! (docs/any-language.md).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{Error, Read, Write};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

const DEVICE: &str = "GPU-3c8e9d6f-1111-2222-3333-444455556666";

/// One piece of GPU work, as two events measured it. Times are nanoseconds on the wall clock.
struct Work {
    name: &'static str,
    start: u128,
    end: u128,
    flops: f64,
    bytes: i64,
}

/// Eight random bytes as hexadecimal digits; not all of them are zeros.
fn id() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish() | 1)
}

fn text(key: &str, value: &str) -> String {
    format!(r#"{{"key":"{key}","value":{{"stringValue":"{value}"}}}}"#)
}

fn number(key: &str, value: f64) -> String {
    format!(r#"{{"key":"{key}","value":{{"doubleValue":{value:e}}}}}"#)
}

/// The body of an export request: the device is on the scope, once for all spans.
fn request(w: &Work) -> String {
    let scope = [
        text("hw.id", DEVICE),
        text("hw.model", "NVIDIA H100 80GB HBM3"),
        text("gpu.timing.source", "cuda_event"),
    ];
    let attributes = [
        text("gpu.operation.type", "section"),
        text("hw.id", DEVICE),
        number("gpu.duration", (w.end - w.start) as f64 / 1e9),
        number("gpu.flop.count", w.flops),
        text("gpu.flop.precision", "bf16"),
        format!(r#"{{"key":"gpu.io.size","value":{{"intValue":"{}"}}}}"#, w.bytes),
    ];
    format!(
        concat!(
            r#"{{"resourceSpans":[{{"resource":{{"attributes":[{}]}},"scopeSpans":[{{"#,
            r#""scope":{{"name":"renderer","attributes":[{}]}},"spans":[{{"traceId":"{}{}","spanId":"{}","#,
            r#""name":"{}","kind":1,"startTimeUnixNano":"{}","endTimeUnixNano":"{}","attributes":[{}]}}]}}]}}]}}"#
        ),
        text("service.name", "renderer"),
        scope.join(","),
        id(),
        id(),
        id(),
        w.name,
        w.start,
        w.end,
        attributes.join(",")
    )
}

/// Sends a body and returns the first line of the response.
fn post(address: &str, body: &str) -> Result<String, Error> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "POST /v1/traces HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response.lines().next().unwrap_or_default().to_string())
}

fn main() {
    let address = std::env::args().nth(1).expect("usage: emit host:port");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is before 1970").as_nanos();
    let work = Work { name: "denoise", start: now - 2_000_000, end: now, flops: 4e11, bytes: 1_200_000_000 };
    match post(&address, &request(&work)) {
        Ok(line) if line.contains(" 200 ") => {}
        Ok(line) => {
            eprintln!("{address} does not accept the span: {line}");
            std::process::exit(1);
        }
        Err(error) => {
            eprintln!("cannot send to {address}: {error} (is a Collector there?)");
            std::process::exit(1);
        }
    }
}
