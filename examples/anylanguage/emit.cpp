// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// A C++ program that sends the span of a piece of GPU work as OTLP/JSON over HTTP, using only POSIX sockets:
//
//	g++ -std=c++17 -o emit emit.cpp && ./emit 127.0.0.1 4318
//
// A service uses opentelemetry-cpp instead, with the same attributes and the times in StartSpanOptions and
// EndSpanOptions. The times here are invented; take them from two CUDA events (docs/any-language.md).
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>

// Work is one piece of GPU work, measured by two events.
struct Work {
	const char *name;
	std::int64_t start_ns, end_ns; // on the wall clock
	double flops;
	std::int64_t bytes;
};

static std::string hex(int bytes) {
	static std::random_device random;
	std::string out;
	for (int i = 0; i < bytes; i++) {
		char digits[3];
		std::snprintf(digits, sizeof digits, "%02x", random() % 255 + 1); // an ID must not be all zeros
		out += digits;
	}
	return out;
}

static std::string text(const std::string &key, const std::string &value) {
	return R"({"key":")" + key + R"(","value":{"stringValue":")" + value + R"("}})";
}

static std::string number(const std::string &key, double value) {
	char digits[32];
	std::snprintf(digits, sizeof digits, "%.17g", value);
	return R"({"key":")" + key + R"(","value":{"doubleValue":)" + digits + "}}";
}

// request returns the body of an export request. The scope names the device for all spans.
static std::string request(const Work &w) {
	const std::string id = "GPU-3c8e9d6f-1111-2222-3333-444455556666";
	return R"({"resourceSpans":[{"resource":{"attributes":[)" + text("service.name", "renderer") +
		R"(]},"scopeSpans":[{"scope":{"name":"renderer","attributes":[)" + text("hw.id", id) + "," +
		text("hw.model", "NVIDIA H100 80GB HBM3") + "," + text("gpu.timing.source", "cuda_event") +
		R"(]},"spans":[{"traceId":")" + hex(16) + R"(","spanId":")" + hex(8) + R"(","name":")" + w.name +
		R"(","kind":1,"startTimeUnixNano":")" + std::to_string(w.start_ns) + R"(","endTimeUnixNano":")" +
		std::to_string(w.end_ns) + R"(","attributes":[)" + text("gpu.operation.type", "section") + "," +
		text("hw.id", id) + "," + number("gpu.duration", double(w.end_ns - w.start_ns) / 1e9) + "," +
		number("gpu.flop.count", w.flops) + "," + text("gpu.flop.precision", "bf16") + "," +
		R"({"key":"gpu.io.size","value":{"intValue":")" + std::to_string(w.bytes) + R"("}}]}]}]}]})";
}

// post sends a body and returns the status code of the response, or 0 without a response.
static int post(const char *host, const char *port, const std::string &body) {
	addrinfo hints{}, *found = nullptr;
	hints.ai_socktype = SOCK_STREAM;
	if (getaddrinfo(host, port, &hints, &found) != 0) return 0;
	int s = socket(found->ai_family, found->ai_socktype, found->ai_protocol), status = 0;
	if (s >= 0 && connect(s, found->ai_addr, found->ai_addrlen) == 0) {
		const std::string message = std::string("POST /v1/traces HTTP/1.1\r\nHost: ") + host + ":" + port +
			"\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
			std::to_string(body.size()) + "\r\n\r\n" + body;
		std::size_t sent = 0;
		for (ssize_t n; sent < message.size(); sent += std::size_t(n)) {
			if ((n = write(s, message.data() + sent, message.size() - sent)) <= 0) break;
		}
		char line[64] = "";
		if (read(s, line, sizeof line - 1) > 0) std::sscanf(line, "HTTP/%*s %d", &status);
	}
	if (s >= 0) close(s);
	freeaddrinfo(found);
	return status;
}

int main(int argc, char **argv) {
	if (argc != 3) {
		std::fprintf(stderr, "usage: %s host port\n", argv[0]);
		return 2;
	}
	const std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
		std::chrono::system_clock::now().time_since_epoch()).count();
	const int status = post(argv[1], argv[2], request({"denoise", now - 2'000'000, now, 4e11, 1'200'000'000}));
	if (status != 200) {
		std::fprintf(stderr, "cannot send to %s:%s: status %d (is a Collector there?)\n", argv[1], argv[2], status);
		return 1;
	}
	return 0;
}
