// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace_test

import (
	"fmt"
	"os"

	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
)

func ExampleWriter() {
	w := chrometrace.NewWriter(os.Stdout)
	start := int64(1_700_000_000_000_000_001)
	err := w.Write([]chrometrace.Event{
		{Name: "kernel", Category: "kernel", Track: chrometrace.Track{Kind: chrometrace.Stream, ID: 7}, Start: start + 5000, End: start + 9500, Correlation: 1},
		{Name: "cudaLaunchKernel", Category: "cuda_runtime", Track: chrometrace.Track{Kind: chrometrace.Host, ID: 4711}, Start: start, End: start + 3000, Correlation: 1},
	})
	if err == nil {
		err = w.Close()
	}
	fmt.Println(err, w.Stats().Flows)
	// Output:
	// {"schemaVersion":1,"otelgpuFormat":1,"baseTimeNanoseconds":1699315200000000000,"traceEvents":[
	// {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":4711,"ts":684800000000.001,"dur":3.000,"args":{"correlation":1}},
	// {"ph":"X","cat":"kernel","name":"kernel","pid":1,"tid":2,"ts":684800000005.001,"dur":4.500,"args":{"device":0,"stream":7,"correlation":1}},
	// {"ph":"s","id":1,"cat":"ac2g","name":"ac2g","pid":1,"tid":4711,"ts":684800000000.001},
	// {"ph":"f","bp":"e","id":1,"cat":"ac2g","name":"ac2g","pid":1,"tid":2,"ts":684800000005.001},
	// {"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"unknown service"}},
	// {"ph":"M","name":"process_sort_index","pid":1,"tid":0,"args":{"sort_index":1}},
	// {"ph":"M","name":"thread_name","pid":1,"tid":4711,"args":{"name":"thread 4711"}},
	// {"ph":"M","name":"thread_sort_index","pid":1,"tid":4711,"args":{"sort_index":545259520}},
	// {"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"GPU 0 stream 7"}},
	// {"ph":"M","name":"thread_sort_index","pid":1,"tid":2,"args":{"sort_index":1073756160}}
	// ]}
	// <nil> 1
}
