// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package collectivesreceiver follows what NCCL Inspector and PyTorch's flight recorder write about
// collectives. It sends metrics of collectives, and a log record for each rank that is late or
// hangs and for each slow communicator. Packages ncclinspector and flightrecorder do the analysis.
package collectivesreceiver
