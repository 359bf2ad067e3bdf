// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package sigv4 stands in for Prometheus' signer of requests to AWS, which nothing in the core build can ask for.
package sigv4

import "errors"

// SigV4Config is refused wherever it is read.
type SigV4Config struct{} //nolint:revive // the name that is asked for

// UnmarshalYAML says that requests cannot be signed.
func (*SigV4Config) UnmarshalYAML(func(any) error) error {
	return errors.New("this build of otelcol-gpu cannot sign requests to AWS (the full build can: make build-full)")
}
