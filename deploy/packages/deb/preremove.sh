#!/bin/sh
# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
set -e
if [ -d /run/systemd/system ] && [ "$1" = remove ]; then
	deb-systemd-invoke stop otelcol-gpu.service || true
fi
