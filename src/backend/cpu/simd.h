// Sixteen float lanes, V16, for each instruction set in a namespace of its own; the loops are
// written once on top.
//
// SPK_ISA names the namespace that a translation unit compiles for; each kernels_*.cc sets it,
// everything else sees the generic one. The loops must stay inside that namespace and call no
// inline function of the standard library or of ours: the linker keeps ONE copy of such a function
// for the whole program, and it might keep the AVX-512 one.
//
//   zero, set1, load, store, load_part, store_part (first n lanes; the others read as zero)
//   add, sub, mul, div, fma (a b + c), fnma (c - a b): one IEEE rounding each
//   lower, higher: a < b ? a : b and a > b ? a : b
//   shift_exponent(a, t): adds the low 9 bits of t's representation to a's exponent field
//   zero_below(x, limit, a): 0 where x < limit, else a
//   reduce, reduce4, reduce4x4: the lane sums of 1, 4 and 16 accumulators, order as in kernels.h
//   transpose16(from, stride, to): to[j][i] = from[i * stride + j], 16 x 16
//   bf16_32, e4m3_32 (times 2^-8), Nibbles::get32 (times the scale): 32 weights in order
//
// E4M3 is widened by way of fp16: its bits moved by 7 are an fp16 number with exponent bias 15
// instead of 7, which is the value times 2^-8, subnormals included. The scales of FP8 matrices are
// therefore kept times 2^8; the product is the same number and is rounded once.
#pragma once

#include "backend/cpu/simd_avx2.h"
#include "backend/cpu/simd_avx512.h"
#include "backend/cpu/simd_generic.h"
#include "backend/cpu/simd_neon.h"

#ifndef SPK_ISA
#define SPK_ISA generic
#endif
