// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"fmt"
	"os"

	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Settings without an environment variable have their default. Invalid values are reported, and the
// default applies.
func ExampleFromEnv() {
	_ = os.Setenv("GPUSPAN_SLOTS", "1024")
	_ = os.Setenv("GPUSPAN_SYNC", "sometimes")
	defer func() { _ = os.Unsetenv("GPUSPAN_SLOTS"); _ = os.Unsetenv("GPUSPAN_SYNC") }()
	s, err := settings.FromEnv()
	fmt.Println(s.Slots, s.Sync, err != nil)
	// Output: 1024 deferred true
}

func ExampleSettings_Validate() {
	s := settings.Default()
	s.Slots = -1
	fmt.Println(s.Validate())
	fmt.Println(s.Valid().Slots == settings.Default().Slots)
	// Output:
	// `slots` must be between 2 and 32768, found -1
	// true
}
