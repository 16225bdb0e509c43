// The table of one instruction set, filled from the loops of namespace SPK_ISA.
#pragma once

#include "backend/cpu/loops_matmul.h"
#include "backend/cpu/loops_mix.h"
#include "backend/cpu/loops_panel.h"

namespace spk::cpu::SPK_ISA {

inline constexpr Kernels make_table(std::string_view isa) {
  Kernels t{};
  t.isa = isa;
  t.matvec = matvec;
  t.decode = decode;
  t.panels = panels;
  t.panel_dots = panel_dots;
  t.dots = dots;
  t.gemm = gemm;
  t.rms_norm = rms_norm;
  t.add = add_to;
  t.axpy = axpy;
  t.scale = scale_to;
  t.multiply = multiply;
  t.weighted_sum = weighted_sum;
  t.swiglu = swiglu;
  t.sigmoid = sigmoid;
  t.largest = largest;
  t.exp_sum = exp_sum;
  t.exp_of = exp_of;
  t.kda_decay = kda_decay;
  t.dot = dot;
  t.quantise = quantise;
  t.conv = conv;
  t.gate = gate;
  t.unit = unit;
  t.norm_gate = norm_gate;
  t.deltas = deltas;
  t.fold = fold;
  return t;
}

}  // namespace spk::cpu::SPK_ISA
