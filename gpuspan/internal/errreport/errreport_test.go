// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package errreport

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestErrorsAreRateLimitedByKind(t *testing.T) {
	var got []string
	r := Reporter{Handle: func(err error) { got = append(got, err.Error()) }}
	for range 5 {
		r.Report("a", errors.New("boom"))
	}
	r.Report("b", errors.New("other"))
	r.kinds["a"].last = time.Now().Add(-time.Hour)
	r.Report("a", errors.New("boom"))
	require.Equal(t, []string{"gpuspan: boom", "gpuspan: other", "gpuspan: boom (and 4 similar errors)"}, got)
}

func TestTheNumberOfKindsIsBounded(t *testing.T) {
	n := 0
	r := Reporter{Handle: func(error) { n++ }}
	for i := range 2 * maxReportKinds {
		r.Report(fmt.Sprint(i), errors.New("boom"))
	}
	require.Equal(t, maxReportKinds, n)
	require.Len(t, r.kinds, maxReportKinds)
}

func TestAPanickingHandlerAndAWrappedErrorAreHarmless(t *testing.T) {
	boom := errors.New("boom")
	var got error
	r := Reporter{Handle: func(err error) { got = err; panic("handler") }}
	require.NotPanics(t, func() { r.Report("a", boom) })
	require.ErrorIs(t, got, boom)
}
