// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package plausibility compares independent descriptions of one device quantity. Each check is a
// small type without a clock. A contradiction has a reason of one table, which states
// what it does to the values, and a Ledger counts it, logs the first one of each source, and lists
// it for the page.
//
// The package knows neither samples nor spans, so that readers, the join and the exporters use it.
package plausibility
