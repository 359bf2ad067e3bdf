// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import "github.com/otelgpu/otelgpu/semconv"

// elementSizes are sizes in bytes of element types as PyTorch names them in its collectives.
var elementSizes = map[string]int64{
	"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2, "Byte": 1, "Char": 1, "Bool": 1,
	"Float8_e4m3fn": 1, "Float8_e5m2": 1,
}

// messageElements adds the size of a collective as PyTorch states it, in elements: of the gathered whole where
// gpu.io.size is that, of the send buffer otherwise.
func (e *Event) messageElements() {
	var size, element int64
	key := "In msg nelems"
	for i := range e.Args {
		switch a := &e.Args[i]; a.Key {
		case string(semconv.GPUIOSizeKey):
			size, _ = a.Value.AsInt()
		case "dtype":
			element = elementSizes[a.Value.str]
		case "Collective name":
			if n, _ := a.Value.AsString(); n == "all_gather" || n == "gather" {
				key = "Out msg nelems"
			}
		}
	}
	if element > 0 && size > 0 && size%element == 0 {
		e.Args = append(e.Args, Arg{key, Int(size / element)})
	}
}
