// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// PREFETCHW, which Go's assembler does not know, does nothing on a processor without it, and never
// faults.

// func Prefetch(p *Start)
TEXT ·Prefetch(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08             // PREFETCHW (AX)
	BYTE $0x0f; BYTE $0x0d; BYTE $0x48; BYTE $0x40 // PREFETCHW 64(AX)
	BYTE $0x0f; BYTE $0x0d; BYTE $0x88; LONG $128  // PREFETCHW 128(AX)
	RET
