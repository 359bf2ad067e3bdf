// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubernetes holds the manifests of deploy/kubernetes against the types of the Kubernetes API. It is a module
// of its own, so that nobody else needs these.
package kubernetes
