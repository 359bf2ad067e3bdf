// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package vale pins the version of Vale, which checks the wording of documents and comments (make
// style). It is a separate module, because Vale's parsers are written in C and need other
// versions of libraries than the other tools.
package vale
