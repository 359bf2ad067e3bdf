// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fileerr_test

import (
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/spanfiles/fileerr"
)

func TestCauseOmitsFileNames(t *testing.T) {
	inner := fs.ErrPermission
	require.Equal(t, inner, fileerr.Cause(fmt.Errorf("flush: %w",
		&fs.PathError{Op: "write", Path: "x.partial", Err: inner})))
	require.Equal(t, inner, fileerr.Cause(&os.LinkError{Op: "rename", Old: "x.partial", New: "x", Err: inner}))
	require.Equal(t, inner, fileerr.Cause(inner))
	require.NoError(t, fileerr.Cause(nil))
}
