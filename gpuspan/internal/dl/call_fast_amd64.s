// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && gpuspan_asm && !gpuspan_static

#include "textflag.h"

// trampoline runs on the system stack as a C function with one argument, a *Frame in DI. It calls Frame.fn with the first
// four of Frame.Args by the System V convention and stores the result in Frame.result. BX and BP belong to the caller; SP is
// 8 modulo 16 on entry and must be 0 at the call.
//
//	 0 fn · 8 Args[0] · … · 96 Args[11] · 104 result
TEXT ·trampoline(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ BP
	MOVQ  SP, BP
	PUSHQ BX
	SUBQ  $8, SP
	MOVQ  DI, BX
	MOVQ  0(BX), R11
	MOVQ  8(BX), DI
	MOVQ  16(BX), SI
	MOVQ  24(BX), DX
	MOVQ  32(BX), CX
	XORL  AX, AX
	CALL  R11
	MOVQ  AX, 104(BX)
	ADDQ  $8, SP
	POPQ  BX
	POPQ  BP
	RET

GLOBL ·trampolineAddr(SB), NOPTR|RODATA, $8
DATA ·trampolineAddr(SB)/8, $·trampoline(SB)
