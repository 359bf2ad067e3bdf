#!/bin/sh
# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
command -v systemctl >/dev/null || exit 0
act=try-restart
if [ "$1" = 1 ]; then
	act=start
	systemctl enable otelcol-gpu.service || true
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	systemctl "$act" otelcol-gpu.service || echo "otelcol-gpu did not start: see journalctl -u otelcol-gpu" >&2
fi
