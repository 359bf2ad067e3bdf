// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package resend repeats data that the next component of a pipeline rejects. Each attempt must send
// data that nobody else has seen, because the next component may share or change what it rejects.
package resend

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/consumer/consumererror"
)

const (
	// DrainTimeout is how long a connector tries to deliver its last data at shutdown.
	DrainTimeout = 10 * time.Second
	// minDelay is the delay before the first repetition: a full queue has space again when its
	// exporter has sent one request, and a longer delay would limit the rate after an outage.
	minDelay = 10 * time.Millisecond
)

// ErrRejected is the error of an attempt that left something to be sent.
var ErrRejected = errors.New("the next component rejects data")

// Permanent reports whether all of an error is permanent. A fan-out returns the errors of several
// components: if one of them may accept the data later, it is sent again.
func Permanent(err error) bool {
	for consumererror.IsPermanent(err) {
		if several, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range several.Unwrap() {
				if !Permanent(e) {
					return false
				}
			}
			return true
		}
		inner := errors.Unwrap(err)
		if inner == nil || !consumererror.IsPermanent(inner) {
			return true
		}
		err = inner
	}
	return false
}

// Delay returns the delays between attempts: from 10 ms, doubled, to InitialInterval, and from
// there as in exporters.
type Delay struct {
	Config *configretry.BackOffConfig
	now    time.Duration
}

// Next returns the delay before the next attempt.
func (d *Delay) Next() time.Duration {
	c := d.Config
	switch {
	case d.now == 0:
		d.now = min(minDelay, c.InitialInterval)
	case d.now < c.InitialInterval:
		d.now = min(2*d.now, c.InitialInterval)
	default:
		d.now = time.Duration(min(float64(d.now)*max(1, c.Multiplier), float64(c.MaxInterval)))
	}
	spread := c.RandomizationFactor * (2*rand.Float64() - 1)
	return time.Duration(float64(d.now) * (1 + spread))
}

// Copies is Until with a copy of data for each attempt. empty returns the target of a copy.
func Copies[T interface{ CopyTo(T) }](
	ctx context.Context, data T, empty func() T, send func(context.Context, T) error,
) error {
	return Until(ctx, func(ctx context.Context) error {
		try := empty()
		data.CopyTo(try)
		return send(ctx, try)
	})
}

// Until calls try until it returns nil or a permanent error, or the context ends, and returns its
// last error. The delays between the attempts grow from 10 ms to 1 s.
func Until(ctx context.Context, try func(context.Context) error) error {
	delay := Delay{Config: &configretry.BackOffConfig{InitialInterval: time.Second, MaxInterval: time.Second}}
	for {
		err := try(ctx)
		if err == nil || Permanent(err) {
			return err
		}
		timer := time.NewTimer(delay.Next())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}
