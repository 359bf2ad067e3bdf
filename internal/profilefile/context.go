// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profilefile

import (
	"context"
	"io"
)

// WithContext returns a reader that ends with the context's cause once the context is done.
func WithContext(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(b)
}
