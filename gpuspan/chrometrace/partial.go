// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

// PartialError is returned by Rotator.Write when some spans are in their files and others are not, as one file of many
// can fail. Only the others may be written again.
type PartialError struct {
	Failed []Event // what is in no file
	err    error
}

// Error is that of the files that failed.
func (e *PartialError) Error() string { return e.err.Error() }

// Unwrap returns what went wrong.
func (e *PartialError) Unwrap() error { return e.err }

// partial is the error of a Write of n spans.
func partial(failed []Event, n int, err error) error {
	if err == nil || len(failed) == n {
		return err
	}
	return &PartialError{Failed: failed, err: err}
}
