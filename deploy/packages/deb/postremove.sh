#!/bin/sh
# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
set -e
if [ "$1" = purge ]; then
	deb-systemd-helper purge otelcol-gpu.service >/dev/null || true
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
