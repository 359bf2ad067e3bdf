// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestARefusalIsLoggedWhenItBeginsAndEnds(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	r, no := refusal{what: "metrics"}, errors.New("no")
	for _, err := range []error{nil, no, no, no, nil, nil, no} {
		r.note(zap.New(core), 3, err)
	}
	var said []string
	for _, e := range logs.All() {
		said = append(said, e.Level.String()+": "+e.Message)
	}
	refused := "warn: metrics are rejected; further rejections are counted, not logged"
	assert.Equal(t, []string{refused, "info: metrics are accepted again", refused}, said)
	assert.Equal(t, map[string]any{"count": int64(3), "error": "no"}, logs.All()[0].ContextMap())
}
