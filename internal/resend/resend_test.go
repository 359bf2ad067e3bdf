// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package resend_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.uber.org/goleak"
	"go.uber.org/multierr"

	"github.com/otelgpu/otelgpu/internal/resend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An error is permanent only if all consumers behind a fan-out reject the data permanently.
func TestOnlyAWhollyPermanentErrorIsPermanent(t *testing.T) {
	lasting, again := consumererror.NewPermanent(errors.New("too large")), errors.New("queue full")
	assert.True(t, resend.Permanent(lasting))
	assert.True(t, resend.Permanent(fmt.Errorf("exporter: %w", lasting)))
	assert.True(t, resend.Permanent(multierr.Append(lasting, lasting)))
	assert.True(t, resend.Permanent(consumererror.NewPermanent(multierr.Append(again, again))))
	assert.False(t, resend.Permanent(nil))
	assert.False(t, resend.Permanent(again))
	assert.False(t, resend.Permanent(multierr.Append(lasting, again)))
	assert.False(t, resend.Permanent(fmt.Errorf("fan-out: %w", errors.Join(again, lasting))))
	assert.False(t, resend.Permanent(multierr.Append(lasting, multierr.Append(again, lasting))))
}

func TestDelaysGrowFromAFullQueueToAnOutage(t *testing.T) {
	d := resend.Delay{Config: &configretry.BackOffConfig{
		InitialInterval: 50 * time.Millisecond, Multiplier: 3, MaxInterval: time.Second,
	}}
	for _, ms := range []time.Duration{10, 20, 40, 50, 150, 450, 1000, 1000} {
		assert.Equal(t, ms*time.Millisecond, d.Next())
	}
	d = resend.Delay{Config: &configretry.BackOffConfig{InitialInterval: time.Millisecond, MaxInterval: time.Millisecond}}
	assert.Equal(t, time.Millisecond, d.Next(), "a shorter interval holds from the beginning")
	d = resend.Delay{Config: &configretry.BackOffConfig{
		InitialInterval: time.Hour, MaxInterval: time.Hour, RandomizationFactor: 0.5,
	}}
	assert.InDelta(t, 10*time.Millisecond, d.Next(), float64(5*time.Millisecond))
}

func TestUntilEndsWithSuccessAPermanentErrorOrTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lasting, again := consumererror.NewPermanent(errors.New("too large")), errors.New("queue full")
		answers := func(list ...error) func(context.Context) error {
			return func(context.Context) error {
				err := list[0]
				list = list[1:]
				return err
			}
		}
		assert.NoError(t, resend.Until(t.Context(), answers(again, again, nil)))
		assert.Equal(t, lasting, resend.Until(t.Context(), answers(again, lasting)))
		ctx, cancel := context.WithTimeout(t.Context(), resend.DrainTimeout)
		defer cancel()
		start, attempts := time.Now(), 0
		assert.Equal(t, again, resend.Until(ctx, func(context.Context) error {
			attempts++
			return again
		}))
		assert.Equal(t, 10*time.Second, time.Since(start))
		assert.Equal(t, 16, attempts, "7 within 0.63 s, then one each second")
	})
}
