// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
)

// compressor compresses with a library that is faster than the standard library's gzip and has
// zstd. Package chrometrace does not import it, so that programs that use gpuspan do not require
// it.
func compressor(c chrometrace.Compression, w io.Writer) (io.WriteCloser, error) {
	switch c {
	case chrometrace.Gzip:
		return gzip.NewWriter(w), nil
	case chrometrace.Zstd:
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	}
	return nil, fmt.Errorf("unknown compression %q (use gzip or zstd)", string(c))
}
