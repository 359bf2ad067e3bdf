// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

#include "textflag.h"

// func counter() uint64
TEXT ·counter(SB), NOSPLIT, $0-8
	WORD $0xd53be040 // MRS CNTVCT_EL0, R0
	MOVD R0, ret+0(FP)
	RET
