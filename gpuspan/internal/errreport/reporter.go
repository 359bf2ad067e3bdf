// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package errreport

import (
	"fmt"
	"sync"
	"time"
)

// reportInterval is the minimum time between two reports of the same kind. An error in every
// section would otherwise flood the application's error handler.
const reportInterval = 10 * time.Second

const maxReportKinds = 64

// Reporter passes errors to the application's error handler, rate-limited by kind. It never panics.
type Reporter struct {
	Handle func(error)

	mu    sync.Mutex
	kinds map[string]*reportKind
}

type reportKind struct {
	last       time.Time
	suppressed int64
}

// Report passes err on unless an error of the same kind was passed on less than reportInterval ago.
func (r *Reporter) Report(kind string, err error) {
	now := time.Now()
	r.mu.Lock()
	k := r.kinds[kind]
	if k == nil {
		if len(r.kinds) >= maxReportKinds {
			r.mu.Unlock()
			return
		}
		if r.kinds == nil {
			r.kinds = make(map[string]*reportKind)
		}
		k = &reportKind{}
		r.kinds[kind] = k
	} else if now.Sub(k.last) < reportInterval {
		k.suppressed++
		r.mu.Unlock()
		return
	}
	n := k.suppressed
	k.last, k.suppressed = now, 0
	r.mu.Unlock()

	if n > 0 {
		err = fmt.Errorf("gpuspan: %w (and %d similar errors)", err, n)
	} else {
		err = fmt.Errorf("gpuspan: %w", err)
	}
	defer func() { _ = recover() }() // the handler is the application's
	r.Handle(err)
}
