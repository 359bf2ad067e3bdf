// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package outputs_test

import (
	"fmt"
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan/outputs"
)

// Two logs written by gpuspan.WithOutputLog diverge where the second layer computed something else.
func ExampleFirstDivergence() {
	log := func(second float32) []outputs.Output {
		text := fmt.Sprintf("%s 1 %q\n%s 1 %q\n", outputs.Format(outputs.Checksum([]float32{1, 2})), "layer 1",
			outputs.Format(outputs.Checksum([]float32{second})), "layer 2")
		list, err := outputs.Read(strings.NewReader(text))
		if err != nil {
			fmt.Println(err)
		}
		return list
	}
	a, b := log(3), log(3.0000002)
	i, differ := outputs.FirstDivergence(a, b)
	fmt.Println(differ, a[i].Operation)
	// Output: true layer 2
}
