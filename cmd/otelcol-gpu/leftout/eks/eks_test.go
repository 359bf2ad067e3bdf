// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package eks

import (
	"strings"
	"testing"
)

func TestDetectionIsRefused(t *testing.T) {
	_, err := NewResourceDetector().Detect(t.Context())
	if err == nil || !strings.Contains(err.Error(), "make build-full") {
		t.Errorf("the remedy is not named: %v", err)
	}
}
