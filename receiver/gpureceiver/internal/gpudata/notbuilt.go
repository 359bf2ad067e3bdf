// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpudata

import (
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
)

// NotBuilt stands for a source whose library is not in this build: it cannot be opened and says why.
func NotBuilt(name, library string) Source { return notBuilt{name, library} }

type notBuilt struct{ name, library string }

func (s notBuilt) Name() string { return s.name }
func (s notBuilt) Open() error {
	return fmt.Errorf("built without cgo or not for Linux: the %s library cannot be loaded: %w", s.library, ErrUnavailable)
}
func (notBuilt) Devices() []gpusamplesextension.Device { return nil }
func (notBuilt) Pace() time.Duration                   { return time.Second }
func (notBuilt) Read(*Batch) error                     { return nil }
func (notBuilt) Close() error                          { return nil }
