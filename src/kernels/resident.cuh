// Layers of a decode step of one row by blocks that stay: one a multiprocessor, for all layers of a
// launch. What were launches are phases, each of which awaits the numbers of the one before:
//
//   norm, q k v f gate | beta, KDA by heads | output projection, addition |
//   norm, router, shared expert's gate and up | choice, gate and up | down, sum, addition |
//
// A launch costs its start, its first wait for memory and its end, a meeting of all blocks a fence,
// a counter and a load; an awaited number (awaited.cuh) costs one trip through the L2, and weights
// are on their way before it. Small work between phases (norms, the choice, quantised rows) every
// block does for itself, which takes less time than to wait for one that does it for all.
//
// What bounds it is instructions: a layer runs once through all of this code, and through more of
// it than the instruction cache holds it ran a third slower. So what happens twice is written once:
// stages share a loop, and functions are called that take a few numbers (a struct would go to the
// stack, which is memory).
//
// No block may be more than a layer ahead of another, or it would write where that one still reads.
// So all meet once a layer, about: they arrive in its middle and look for the others behind the
// choice.
//
// The bits are those of the verbs: the same operations in the same order as rms_norm, tiles,
// matvec, kda_block, route, the packed experts and expert_sum.
#pragma once

#include "kernels/resident_experts.cuh"
#include "kernels/resident_kda.cuh"
#include "kernels/route.cuh"

namespace spk::gpu {

static_assert(kRouteWords * 4 <= kResidentScratch, "");

// A row of a stored matrix by a warp, as matvec has it.
template <int F>
SPK_CALLED float row_dot(const unsigned char* row, const float* x, int cols) {
  constexpr int kNumbers = Codec<F>::kNumbers, kColumns = kWarp * kNumbers, kAtOnce = 5;
  const int lane = thread_now() % kWarp;
  const uint4* const codes = reinterpret_cast<const uint4*>(row) + lane;
  float sum = 0.f;
#pragma unroll 1
  for (int first = 0; first * kColumns < cols; first += kAtOnce) {
    uint4 w[kAtOnce];
#pragma unroll
    for (int f = 0; f < kAtOnce; ++f)
      w[f] = (first + f) * kColumns + lane * kNumbers < cols ? codes[(first + f) * kWarp]
                                                             : uint4{0, 0, 0, 0};
#pragma unroll
    for (int f = 0; f < kAtOnce; ++f) {
      const int c = (first + f) * kColumns + lane * kNumbers;
      if (c >= cols) break;
#pragma unroll
      for (int q = 0; q < kNumbers / 4; ++q) {
        const float4 v = *reinterpret_cast<const float4*>(x + c + 4 * q);
        sum = fmaf(number<F>(w[f], 4 * q, 1.f), v.x, sum);
        sum = fmaf(number<F>(w[f], 4 * q + 1, 1.f), v.y, sum);
        sum = fmaf(number<F>(w[f], 4 * q + 2, 1.f), v.z, sum);
        sum = fmaf(number<F>(w[f], 4 * q + 3, 1.f), v.w, sum);
      }
    }
  }
  return warp_sum(sum);
}
// Pieces used then.
SPK_DEVICE int norm_through_ring(int which, const NormArgs& a, const float* x, bool awaits,
                                 int used) {
  const ResidentMemory m = resident_memory();
  wait_for_piece(m, used);
  norm_row(a, x, awaits, reinterpret_cast<const float*>(slot_of(m, used)));
  if (thread_now() < kWarp) ask_for_pieces(which, used + kResidentSlots, 1);
  return used + 1;
}
// The router's rows of this block, a warp each; they come through the ring. Meanwhile the other
// warps make the row that experts take. Pieces used then.
template <int F>
SPK_DEVICE int router_scores(int which, int used, float* scores) {
  const ResidentMemory m = resident_memory();
  const LayerArgs& l = m.layers[which];
  const int lane = thread_now() % kWarp, warp = thread_now() / kWarp;
  const int blocks = static_cast<int>(gridDim.x), experts = l.route.experts;
  quantise_groups(m.row, l.e.hidden / kQuantGroup, m.quantised.codes, m.quantised.groups, false,
                  kResidentSlots, kResidentWarps - kResidentSlots);
  int first = static_cast<int>(blockIdx.x);
#pragma unroll 1
  do {
    const int expert = first + warp * blocks;
    if (warp < kResidentSlots && expert < experts) {
      wait_for_piece(m, used + warp);
      const float score = row_dot<F>(slot_of(m, used + warp), m.row, l.router.cols);
      if (lane == 0) post(scores + expert, score);
    }
    __syncthreads();
    const int rows = min(kResidentSlots, max(experts - first + blocks - 1, 0) / blocks);
    if (warp == 0) ask_for_pieces(which, used + kResidentSlots, rows);
    used += rows;
    first += kResidentSlots * blocks;
  } while (first < experts);
  return used;
}

// By one warp: what the host is to know of a choice. Distinct experts: a replayed route may name
// one twice.
SPK_DEVICE void note_choice(const LayerArgs& l, const int* slots) {
  const int lane = thread_now() % kWarp;
  const bool there = lane < l.e.top_k;
  const int mine = there ? slots[lane] : -1;
  bool first = there;
#pragma unroll 1
  for (int k = 0; k + 1 < l.e.top_k; ++k)
    if (k < lane && slots[k] == mine) first = false;
  const auto distinct = static_cast<unsigned long long>(warp_total(first ? 1 : 0));
  if (there) l.route.ids.data[lane] = mine;
  if (lane != 0) return;
  l.totals[0] += distinct;
  l.totals[1] += distinct * l.expert_bytes;
}

// Has memory brought into the L2, a line a thread.
SPK_DEVICE void ask_for_lines(const void* data, int bytes) {
  const int line = thread_now();
  if (line * kLineBytes < bytes) ask_for_line(static_cast<const char*>(data) + line * kLineBytes);
}

// This block's share of the memory that the next layer posts to.
SPK_DEVICE void make_absent(float* memory, int floats) {
  const int blocks = static_cast<int>(gridDim.x), vectors = floats / 4;
  const int share = (vectors + blocks - 1) / blocks, first = static_cast<int>(blockIdx.x) * share;
  const int end = min(first + share, vectors);
  const uint4 absent{kAbsent, kAbsent, kAbsent, kAbsent};
#pragma unroll 1
  for (int i = first + thread_now(); i < end; i += kResidentThreads)
    reinterpret_cast<uint4*>(memory)[i] = absent;
}

SPK_DEVICE i64 cycles_now() {
#if defined(__CUDA_ARCH__)
  i64 now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now));
  return now;
#else
  return emulated_clock();
#endif
}
SPK_DEVICE i64 nanoseconds_now() {
#if defined(__CUDA_ARCH__)
  i64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  return emulated_clock();
#endif
}

// Grid: a block a multiprocessor, all running at once; kResidentThreads threads, kResidentShared
// bytes. F: format of the routers, D: head_dim, K: taps. kTimed: leaves clocks.
template <int F, int D, int K, bool kTimed>
__global__ void __launch_bounds__(kResidentThreads, 1)
    resident(const __grid_constant__ ResidentArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const ResidentMemory m = resident_memory();
  // Asked for anew at each use (thread_now).
  const auto warp_now = [] { return thread_now() / kWarp; };
  const auto lane_now = [] { return thread_now() % kWarp; };
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const ExchangePlaces& places = a.places;
  // The thread that meets others for its block: of a warp with less to do than most.
  const auto meets = [] { return thread_now() == (kResidentWarps - 2) * kWarp; };
  Meeting meeting{a.arrived};
  WarpCopies copies;
  int used = 0;  // pieces of the ring
  start_arrivals(m.arrivals, kArrivals);
  for (int word = thread_now(); word < static_cast<int>(sizeof(LayerArgs) / 16);
       word += kResidentThreads)
    reinterpret_cast<uint4*>(m.layers)[word] = reinterpret_cast<const uint4*>(a.layer[0])[word];
  if (thread_now() == 0) m.state->end = 0;
  __syncthreads();
  if (warp_now() == 0) {
    if (thread_now() == 0) ask_for_list(0);
    begin_layer(0, 0, 0);
    ask_for_pieces(0, 0, kResidentSlots);
  }
  wait_for_previous();
  int turn = *a.turn;
  if (thread_now() == 0) m.state->fold = m.layers[0].kda.step->fold;  // of all layers
  const auto note_clocks = [&](int which) {
    if (!kTimed || thread_now() != 0) return;
    a.clocks[block].cycles[which] = cycles_now();
    a.clocks[block].nanoseconds[which] = nanoseconds_now();
  };
  note_clocks(0);
  const auto turn_after = [&](int ahead) { return (turn + ahead) % kExchangeTurns; };
  const auto memory_of = [&](int of) { return a.exchange + of * places.floats; };

#pragma unroll 1
  for (int at = 0; at < a.count; ++at) {
    const int which = at % 2;
    const LayerArgs& l = m.layers[which];
    const ExpertsArgs& e = l.e;
    const KdaBlockArgs& kda = l.kda;
    const bool more = at + 1 < a.count;
    const auto note_end = [&](Mark mark) {
      if (kTimed && thread_now() == 0) a.clocks[block].end[at][mark] = cycles_now();
    };
    if (kTimed && thread_now() == 0) a.clocks[block].begin[at] = cycles_now();
    float* const posted = memory_of(turn);
    const float* const sum_before = memory_of(turn_after(kExchangeTurns - 1)) + places.sum;
    const Exchange tiles_to{posted, at > 0 ? sum_before : l.behind.x.data};
    using Mix = ResidentKda<D, K>;
    // Units of KDA: the last blocks, which have fewer tiles, begin.
    const int units = kda.heads * Mix::kUnits, own = blocks - 1 - block;
    const bool alone = blocks == 1;  // it has all units; else a block has one at most
    const RouteMemory choice = route_memory(reinterpret_cast<float4*>(m.scratch));
    const unsigned char* down_source = nullptr;
    // What is multiplied in each stage is made by all blocks, each for itself. One copy of the code
    // for all stages: what a layer runs through should stay in the instruction cache.
    const int stages = l.feeds ? kStages : kStageShared;
#pragma unroll 1
    for (int stage = kStageIn; stage < stages; ++stage) {
      if (stage != kStageOut) {
        const bool first = stage == kStageIn;
        const NormArgs& norm = first ? l.before : l.behind;
        const bool awaits = !first || at > 0;
        const float* const x = !first   ? posted + places.residual
                               : at > 0 ? sum_before
                                        : norm.x.data;
        if (norm.w) {
          used = norm_through_ring(which, norm, x, awaits, used);
        } else {
          for (int c = thread_now(); c < norm.cols; c += kResidentThreads) m.row[c] = x[c];
          __syncthreads();
        }
        note_end(first ? kMarkNorm : kMarkSecondNorm);
      }
      if (stage == kStageIn) {
        if (own < units) {
          ask_for_lines(l.beta.codes + own / Mix::kUnits * l.beta.row_bytes,
                        static_cast<int>(l.beta.row_bytes));
          Mix::read_early(which, own);
        }
        if (more && thread_now() == 0) {
          announce(m.arrivals + kLayerArrival, sizeof(LayerArgs));
          bring(m.layers + 1 - which, a.layer[at + 1], sizeof(LayerArgs),
                m.arrivals + kLayerArrival);
        }
      } else if (stage == kStageOut) {
        // ---- KDA ----
        if (warp_now() == kResidentWarps - 1)
#pragma unroll 1
          for (int unit = own; unit < units; unit += blocks) {
            const int head = unit / Mix::kUnits;
            const float beta =
                row_dot<kBf16>(l.beta.codes + head * l.beta.row_bytes, m.row, l.beta.cols);
            if (lane_now() == 0) m.outs[head] = sigmoid(beta);
          }
#pragma unroll 1
        for (int unit = own; unit < units; unit += blocks) {
          if (unit != own) Mix::read_early(which, unit);
          Mix mix;
          mix.run(kda, unit, m.outs, posted + places.products, posted + places.mixed);
          if (!alone) break;
          __syncthreads();
          Mix::write_shared(which, unit);
          __syncthreads();
        }
        if (own >= units && l.feeds) {  // has time
          const int bytes = l.route.experts * static_cast<int>(sizeof(ExpertWeights));
          const int share = (bytes / blocks / kLineBytes + 1) * kLineBytes;
          ask_for_lines(reinterpret_cast<const char*>(e.experts) + block * share,
                        min(share, bytes - block * share));
          ask_for_lines(l.route.bias, l.route.experts * static_cast<int>(sizeof(float)));
        }
        note_end(kMarkMix);
        make_absent(memory_of(turn_after(1)), places.floats);
        if (more && thread_now() == 0) {
          wait_for(m.arrivals + kLayerArrival, at);
          ask_for_list(1 - which);
        }
        __syncthreads();
        note_end(kMarkAbsent);
        Mix::gated_norm(kda, posted + places.mixed, posted + places.products + 4 * (kda.heads * D),
                        reinterpret_cast<float*>(m.scratch));
        __syncthreads();
        note_end(kMarkGated);
      } else {
        // ---- router and choice; the chosen experts' weights are asked for ----
        if (more && meets()) meeting.arrive();
        const float bias = bias_of(l.route);
        used = router_scores<F>(which, used, posted + places.scores);
        note_end(kMarkRouter);
        const float score =
            thread_now() < l.route.experts ? awaited(posted + places.scores + thread_now()) : 0.f;
        note_end(kMarkScores);
        choose_row(l.route, score, bias, 0, m.slots, choice);
        note_end(kMarkChoice);
        down_source = ask_for_experts(which);
        if (l.shared_waits) {
          const int begin =
              m.state->end - l.cut[kStageShared].pieces * tiles_of_block(l, kStageShared);
          if (warp_now() == 0)  // nobody uses the empty ones in front
            ask_for_pieces(which, used + kResidentSlots, begin - used);
          used = begin;
        }
        note_end(kMarkAsked);
      }
      stage_row(stage == kStageOut ? reinterpret_cast<float*>(m.scratch) : m.row,
                l.cut[stage].steps, false, 0, kResidentWarps);
      __syncthreads();
      used = run_tiles(which, stage, used, tiles_to, places);
      if (stage == kStageOut && own < units && !alone) Mix::write_shared(which, own);
      note_end(stage == kStageIn ? kMarkIn : stage == kStageOut ? kMarkOut : kMarkShared);
    }
    if (l.feeds) {
      experts_up(which, copies, posted + places.act);
      note_end(kMarkUp);
      used = (used + kResidentSlots - 1) / kResidentSlots * kResidentSlots;
      if (warp_now() == kResidentWarps - 1) weigh_row(l.route, m.slots, choice, m.weights);
      if (more && meets()) meeting.wait();
      __syncthreads();
      note_end(kMarkMeeting);
      // ---- down, sum, addition ----
      const DownRows down(e);
      int row = down.first, rows = down.rows_at(row);
      if (rows > 0) down.ask(e, row, rows, down_source);
      // Of the second warp, whose lanes add.
      const float* const residual = posted + places.residual;
      float before = warp_now() == 1 && lane_now() < rows ? look(residual + row + lane_now()) : 0.f;
      QuantRows act;
      act.codes = reinterpret_cast<signed char*>(m.scratch);
      act.groups = reinterpret_cast<unsigned*>(m.scratch + e.top_k * e.width);
      act.cols = e.width;
      constexpr int kStage = 3, kQuantise = kResidentWarps - kStage - 1;  // warps
      quantise_groups(posted + places.act, e.top_k * e.width / kQuantGroup, act.codes, act.groups,
                      true, 0, kQuantise);
      stage_row(posted + places.shared, e.shared_width / kTileStep, true, kQuantise, kStage);
      if (more && warp_now() == kResidentWarps - 1) begin_layer(1 - which, used, at + 1);
      __syncthreads();
      // Not before: what is awaited would wait behind it.
      if (more && warp_now() == kResidentWarps - 1)
        ask_for_pieces(1 - which, used, kResidentSlots - down.slots);
      note_end(kMarkStaged);
      note_end(kMarkDown);
#pragma unroll 1
      while (rows > 0) {
        down.products(e, act, row, rows, copies);
        __syncthreads();
        note_end(kMarkDown);
        if (warp_now() == 1 && lane_now() < rows) {
          float sum = 0.f;
#pragma unroll 4
          for (int k = 0; k < e.top_k; ++k)
            sum = fmaf(m.weights[k], m.outs[k * kResidentDown + lane_now()], sum);
          sum += number_of(m.parts + lane_now() / kTileGroup * (kWarps * kTileGroup),
                           lane_now() % kTileGroup);
          if (l.adds) sum = before + sum;
          if (more) post(posted + places.sum + row + lane_now(), sum);
          // For launches behind; a last layer that does not feed leaves the residual to them too.
          if (!more || !m.layers[1 - which].feeds)
            (l.adds ? l.behind.x : l.behind.o).data[row + lane_now()] = sum;
        }
        row += kResidentDown;
        rows = down.rows_at(row);
        if (rows <= 0) break;
        __syncthreads();
        down.ask(e, row, rows, down.source(e, rows));
        if (warp_now() == 1 && lane_now() < rows) before = look(residual + row + lane_now());
        __syncthreads();  // the scales
      }
      if (block == 0) {
        if (warp_now() == kResidentWarps - 2) note_choice(l, m.slots);
        if (thread_now() < e.top_k) l.route.weights.data[thread_now()] = m.weights[thread_now()];
      }
      if (more && warp_now() == 0)
        ask_for_pieces(1 - which, used + kResidentSlots - down.slots, down.slots);
    }
    turn = turn_after(1);
    __syncthreads();
    note_end(kMarkSum);
  }
  note_clocks(1);
  let_next_start();
  if (meets() && meeting.leave()) *a.turn = turn;
#endif
}

}  // namespace spk::gpu
