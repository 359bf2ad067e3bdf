// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// A C++ program that associates its kernels with a span. It builds without CUDA, with any compiler:
//
//     g++ -std=c++17 -I../../receiver/gpucapturereceiver/shim main.cpp -ldl -o service
//
// and runs the same with the capture library and without:
//
//     CUDA_INJECTION64_PATH=../../bin/libotelgpu_capture.so ./service
#include <cstdio>
#include <string>

#include "otelgpu.h"

// In a real service: the current span of the OpenTelemetry C++ SDK, as its W3C propagator writes it.
static std::string current_traceparent() { return "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"; }

// Associates the launches of this thread with a span while it is in scope.
class Launches {
public:
	explicit Launches(const std::string &traceparent) { otelgpu_push(traceparent.c_str()); }
	~Launches() { otelgpu_pop(); }
	Launches(const Launches &) = delete;
	Launches &operator=(const Launches &) = delete;
};

int main() {
	{
		Launches of(current_traceparent());
		// prefill<<<grid, block, 0, stream>>>(...);
		// decode<<<grid, block, 0, stream>>>(...);
	}
	std::puts("served one request");
	return 0;
}
