// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package rules turns facts into findings. A file has the rules about one subject, and each rule
// has a row in the table of tests that checks it on both sides of its threshold.
//
// Rules run in the order in which [Device] calls them: a rule that claims time subtracts it from
// what later rules may claim, so that no two findings of a subject count the same time. Kinds,
// titles, thresholds and usual remedies are in semconv/registry/finding.yaml. Rules read facts and
// change none of them; they do not depend on how facts are collected.
package rules
