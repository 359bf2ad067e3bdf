// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package backend_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// accelerator is a device API under construction: it lists its devices and times nothing yet.
type accelerator struct{ backend.Unimplemented }

func (accelerator) Name() string { return "accelerator_event" }

func (accelerator) Devices() ([]backend.Device, error) {
	return []backend.Device{{UUID: "ACC-1", Model: "accelerator", Vendor: "example"}}, nil
}

// A new device API starts with the methods that it has. Sections have host times until it records
// events.
func ExampleUnimplemented() {
	prof, err := gpuspan.New(accelerator{}, gpuspan.WithErrorHandler(func(error) {}))
	if err != nil {
		fmt.Println(err)
	}
	defer func() { _ = prof.Shutdown(context.Background()) }()
	fmt.Println(prof.Source(), prof.Devices()[0].Model, prof.Stream(1, "main").DeviceTimed())
	// Output: accelerator_event accelerator false
}

// Errors that gpuspan reports contain what the driver returned.
func ExampleStatusError() {
	err := fmt.Errorf("stream %q is retired: %w", "main", &backend.StatusError{Call: "event", Status: 719})
	var status *backend.StatusError
	fmt.Println(errors.As(err, &status), status.Call, int(status.Status))
	// Output: true event 719
}
