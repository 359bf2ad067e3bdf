// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package browser opens the live page and reports in a headless Chromium, by mouse and by keyboard,
// and takes the pictures of docs/images. It is a separate module, so that other modules do not
// depend on the driver. Without a Chromium its tests are skipped.
package browser
