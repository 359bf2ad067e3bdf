// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubernetes tests the manifests of deploy/kubernetes and the chart of deploy/helm: it
// decodes every object strictly into the types of the Kubernetes API, and evaluates Pod Security.
// It is a separate module, so that other modules do not depend on these.
package kubernetes
