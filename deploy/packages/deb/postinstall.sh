#!/bin/sh
# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
set -e
if deb-systemd-helper --quiet was-enabled otelcol-gpu.service; then
	deb-systemd-helper enable otelcol-gpu.service >/dev/null || true
else
	deb-systemd-helper update-state otelcol-gpu.service >/dev/null || true
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	deb-systemd-invoke restart otelcol-gpu.service || echo "otelcol-gpu did not start: see journalctl -u otelcol-gpu" >&2
fi
