// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package backend_test

import (
	"errors"
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// Errors that gpuspan reports contain what the driver returned.
func ExampleStatusError() {
	err := fmt.Errorf("stream %q is retired: %w", "main", &backend.StatusError{Call: "event", Status: 719})
	var status *backend.StatusError
	fmt.Println(errors.As(err, &status), status.Call, int(status.Status))
	// Output: true event 719
}
