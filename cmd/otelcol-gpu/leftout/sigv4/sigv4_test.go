// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sigv4

import (
	"strings"
	"testing"
)

func TestSigningIsRefused(t *testing.T) {
	err := new(SigV4Config).UnmarshalYAML(nil)
	if err == nil || !strings.Contains(err.Error(), "make build-full") {
		t.Errorf("the remedy is not named: %v", err)
	}
}
