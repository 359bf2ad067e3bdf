// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"syscall"
)

// withHint adds what to do to an error of the Collector that names only what went wrong.
func withHint(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w (another program listens there: stop it, or choose another address in the configuration or, "+
			"for the ready pipelines, by the environment variables that \"otelcol-gpu config all-in-one\" lists)", err)
	}
	return err
}
