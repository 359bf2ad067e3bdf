// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package errreport

import (
	"fmt"
	"sync"
	"time"
)

// reportInterval is the minimum time between two reports of the same kind. An error in every section would otherwise
// flood the application's error handler.
const reportInterval = 10 * time.Second

const maxReportKinds = 64

// Reporter hands errors to the application's error handler, rate-limited by kind. It never panics.
type Reporter struct {
	Handle func(error)

	mu    sync.Mutex
	Kinds map[string]*reportKind
}

type reportKind struct {
	Last       time.Time
	suppressed int64
}

// Report hands err on unless an error of the same kind was handed on less than reportInterval ago.
func (r *Reporter) Report(kind string, err error) {
	now := time.Now()
	r.mu.Lock()
	k := r.Kinds[kind]
	if k == nil {
		if len(r.Kinds) >= maxReportKinds {
			r.mu.Unlock()
			return
		}
		if r.Kinds == nil {
			r.Kinds = make(map[string]*reportKind)
		}
		k = &reportKind{}
		r.Kinds[kind] = k
	} else if now.Sub(k.Last) < reportInterval {
		k.suppressed++
		r.mu.Unlock()
		return
	}
	n := k.suppressed
	k.Last, k.suppressed = now, 0
	r.mu.Unlock()

	if n > 0 {
		err = fmt.Errorf("gpuspan: %w (and %d more like it)", err, n)
	} else {
		err = fmt.Errorf("gpuspan: %w", err)
	}
	defer func() { _ = recover() }() // the handler is the application's
	r.Handle(err)
}
