#!/bin/sh
# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
if [ "$1" = 0 ] && command -v systemctl >/dev/null; then
	systemctl disable --now otelcol-gpu.service || true
fi
