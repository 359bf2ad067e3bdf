// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build sqlite

package sqlitetest

import _ "modernc.org/sqlite" // the engine
