// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func Prefetch(p *Start)
TEXT ·Prefetch(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PSTL1KEEP
	PRFM 64(R0), PSTL1KEEP
	PRFM 128(R0), PSTL1KEEP
	RET
