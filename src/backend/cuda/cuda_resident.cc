// Layers of one row by blocks that stay (resident.cuh). Nothing is launched while layers come that
// fit; whatever else is asked for launches them first, as one.
#include "backend/cuda/cuda.h"
#include "backend/cuda/resident_pieces.h"
#include "backend/cuda/work.h"
#include "base/error.h"
#include "base/types.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <utility>

namespace spk::cuda {
namespace {

// Layers times sessions whose arguments are on the device at once.
constexpr int64_t kKnown = 1024;

bool same(const gpu::View& a, const Rows& b) {
  const gpu::View v = view_of(b);
  return a.data == v.data;
}
// As launches are told apart: arguments have no padding (args.cuh).
bool same_bytes(const gpu::LayerArgs& a, const gpu::LayerArgs& b) {
  return std::ranges::equal(std::as_bytes(std::span(&a, 1)), std::as_bytes(std::span(&b, 1)));
}
bool is_tiled(const Weight& w, int64_t rows, int64_t cols) {
  return w.format == Format::kFp8 && w.rows == rows && w.cols == cols && rows > 1 &&
         cols % gpu::kTileStep == 0 && cols <= gpu::kResidentColumns;
}

std::string tenths(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", x);
  return text;
}

gpu::ExchangePlaces places_of(const ModelShape& s) {
  return gpu::exchange_places(static_cast<int>(s.heads * s.head_dim), static_cast<int>(s.hidden),
                              static_cast<int>(s.experts), static_cast<int>(s.shared_dim),
                              static_cast<int>(s.top_k * s.expert_dim));
}

}  // namespace

bool CudaBackend::stays() const {
  constexpr size_t kStatic = 1 << 10;  // that the kernel declares itself
  // Blocks that share a head have one unit each, or one block has all.
  const int64_t blocks = device_->info().multiprocessors;
  const int64_t units = shape_.heads * shape_.head_dim * gpu::kKdaSlices / gpu::kResidentThreads;
  return options_.fuse && options_.resident != Resident::kOff && has_resident(shape_) &&
         device_->info().overlaps && (blocks == 1 || units <= blocks) &&
         device_->info().shared >= gpu::kResidentShared + kStatic;
}

bool CudaBackend::hold_first_norm(const Rows& x, const Weight& w, const Rows& y) {
  if (step_.kind == StepKind::kPrefill || x.rows != 1 || x.cols != shape_.hidden || !stays() ||
      pending_ || pending_norm_ || (!resident_.empty() && open_ != Open::kWhole))
    return false;
  pending_norm_ = PendingNorm{{view_of(x),
                               {},
                               view_of(y),
                               floats_of(w),
                               static_cast<int>(x.cols),
                               static_cast<float>(shape_.eps)},
                              y,
                              false};
  return true;
}

bool CudaBackend::resident_kda(const Layer& layer, const LayerState& state, const Scratch& t) {
  const Kda& w = layer.kda;
  const int64_t n = shape_.heads * shape_.head_dim, hidden = shape_.hidden;
  // The norm in front is this kernel's, or has been made with the sum of a layer by other launches.
  const bool normed = !pending_norm_ && resident_.empty();
  const bool held = pending_norm_ && !pending_norm_->adds && same(pending_norm_->args.y, t.h);
  if ((!normed && !held) || t.h.rows != 1 || step_.kind == StepKind::kPrefill || !stays() ||
      resident_.size() == gpu::kMostLayers)
    return false;
  // A launch has routers of one format.
  if (!resident_.empty() && layer.is_moe && layer.moe.router.format != resident_router_)
    return false;
  const Weight* const in[] = {&w.q, &w.k, &w.v, &w.f, &w.g};
  for (const Weight* const product : in)
    if (!is_tiled(*product, n, hidden)) return false;
  if (!is_tiled(w.o, hidden, n) || w.b.format != Format::kBf16 || w.b.rows != shape_.heads ||
      shape_.heads == 1)
    return false;
  gpu::LayerArgs a{};
  if (held) {
    a.before = std::exchange(pending_norm_, std::nullopt)->args;
  } else {
    a.before.x = view_of(t.h);
    a.before.cols = static_cast<int>(hidden);
  }
  const Rows out[] = {t.q.slice_cols(0, n), t.k.slice_cols(0, n), t.v.slice_cols(0, n), t.f, t.g};
  for (const Weight* const product : in) {
    a.in.p[a.in.count] = {matrix_of(*product), view_of(out[a.in.count]), 0, static_cast<int>(n),
                          a.in.groups};
    ++a.in.count;
    a.in.groups += static_cast<int>(ceil_div(n, gpu::kTileGroup));
    count(*product);
  }
  a.cut[gpu::kStageIn] = gpu::cut_tile(static_cast<int>(hidden));
  a.cut[gpu::kStageOut] = gpu::cut_tile(static_cast<int>(n));
  a.in.n = 1;
  a.gate = a.in.count - 1;
  a.beta = matrix_of(w.b);
  a.kda = kda_args(w, state, t);
  a.out = {matrix_of(w.o), view_of(t.o), 0, static_cast<int>(hidden), 0};
  count(w.b);
  count(w.o);
  count_tails(state);
  count_states(state);
  if (layer.is_moe) resident_router_ = layer.moe.router.format;
  resident_.push_back(a);
  open_ = Open::kExperts;
  return true;
}

bool CudaBackend::fits_resident(const Moe& w) {
  const ExpertTable& table = expert_table(w);
  const int64_t hidden = shape_.hidden, top_k = shape_.top_k, width = w.experts.front().gate.rows;
  const Ffn& s = w.shared;
  if (width != shape_.expert_dim || (s.gate && s.gate.rows != shape_.shared_dim)) return false;
  if (!table.up_packed || !table.down_packed || !s.gate || width % 128 != 0 ||
      !has_front(w.router.format, w.router.cols, shape_.experts))
    return false;
  const int64_t shared = s.gate.rows;
  constexpr int64_t kMostShared = 2 * gpu::kTileStep * gpu::kWarps;  // two steps a warp
  if (shared > kMostShared || !is_tiled(s.gate, shared, hidden) ||
      !is_tiled(s.up, shared, hidden) || !is_tiled(s.down, hidden, shared))
    return false;
  // What lies in the ring at once: a chunk of a warp; the last product's rows.
  const auto packed = [](int64_t rows, int64_t cols) { return rows * (cols / 2 + cols / 32); };
  const int64_t down = top_k * packed(gpu::kResidentDown, width) + gpu::kResidentDown * shared;
  return 2 * packed(gpu::kResidentQuad, hidden) <= gpu::kRingBytes && down <= gpu::kRingBytes &&
         top_k * (width + width / gpu::kQuantGroup * 8) <= gpu::kResidentScratch;
}

bool CudaBackend::resident_moe(const Moe& w, const Scratch& t) {
  if (!pending_norm_ || !pending_norm_->adds || !same(pending_norm_->args.y, t.h) || !stays() ||
      !fits_resident(w))
    return false;
  // Alone a launch would cost more than it saves.
  if (resident_.empty() || resident_router_ != w.router.format) return false;
  const int64_t top_k = shape_.top_k;
  gpu::LayerArgs& a = resident_.back();
  const auto columns = [&](const Ints& from) {
    return from ? from.slice_cols(w.index * top_k, top_k) : Ints{};
  };
  const Ints kept = columns(step_.routes_out);
  a.behind = std::exchange(pending_norm_, std::nullopt)->args;
  a.router = matrix_of(w.router);
  a.cut[gpu::kStageShared] = gpu::cut_tile(static_cast<int>(shape_.hidden));
  // The scores are awaited, not read.
  a.route = route_args({}, w, columns(step_.routes_in), kept ? kept : t.route_id, t.route_weight);
  const ExpertTable& table = expert_table(w);
  a.e.experts = pointer_to<const gpu::ExpertWeights>(table.device);
  a.e.shared = {matrix_of(w.shared.gate), matrix_of(w.shared.up), matrix_of(w.shared.down)};
  a.e.n = 1;
  a.e.top_k = static_cast<int>(top_k);
  a.e.width = static_cast<int>(shape_.expert_dim);
  a.e.hidden = static_cast<int>(shape_.hidden);
  a.e.limit = static_cast<float>(w.routed_limit);
  a.e.shared_width = static_cast<int>(shape_.shared_dim);
  a.e.shared_limit = static_cast<float>(w.shared_limit);
  a.totals = pointer_to<unsigned long long>(expert_totals_) + 2;
  a.expert_bytes = table.bytes;
  a.feeds = 1;
  a.chunks = gpu::plan_chunks(a.cut[gpu::kStageShared], a.e.shared_width, a.e.top_k, a.e.width,
                              a.e.hidden, static_cast<int>(device_->info().multiprocessors));
  a.shared_waits = a.chunks.tiles > 0 ? 1 : 0;
  count(w.router);
  count_shared(w);
  resident_router_ = w.router.format;
  open_ = Open::kAddition;
  return true;
}

bool CudaBackend::resident_add(const Rows& x, const Rows& o) {
  if (resident_.empty() || open_ != Open::kAddition || pending_norm_) return false;
  gpu::LayerArgs& a = resident_.back();
  if (!same(a.behind.x, x) || !same(a.behind.o, o)) return false;
  a.adds = 1;
  open_ = Open::kWhole;
  return true;
}

DevicePointer CudaBackend::layer_on_device(const gpu::LayerArgs& layer) {
  KnownLayers& known = known_layers_[layer.in.p[0].w.codes];
  for (const KnownLayer& k : known.layers)
    if (same_bytes(k.args, layer)) return k.at;
  if (!layer_memory_) layer_memory_ = take(kKnown * sizeof layer, "layers of one row");
  gpu::LayerArgs whole = layer;
  place_pieces(whole, known);
  const DevicePointer at = layer_memory_ + static_cast<size_t>(layers_there_++) * sizeof layer;
  upload_bytes(at, &whole, sizeof whole);
  known.layers.push_back({layer, at});
  return at;
}

// Sessions differ in their states, not in what is read through the ring: mostly there is one list.
void CudaBackend::place_pieces(gpu::LayerArgs& layer, KnownLayers& known) {
  PieceLists lists = list_pieces(layer, places_of(shape_), device_->info().multiprocessors);
  const size_t bytes = lists.pieces.size() * sizeof(gpu::Piece);
  if (known.pieces != lists.pieces) {
    // Where others lay that are no longer asked for: what runs was given to the stream before.
    if (known.pieces.size() != lists.pieces.size()) known.list = take(bytes, "layers of one row");
    known.layers.clear();
    upload_bytes(known.list, lists.pieces.data(), bytes);
    known.pieces = std::move(lists.pieces);
  }
  layer.pieces = pointer_to<const gpu::Piece>(known.list);
  layer.piece_stride = lists.stride;
}

// Absent numbers, and the first turn.
void CudaBackend::place_exchange(size_t floats) {
  const std::vector<uint32_t> absent(floats, gpu::kAbsent);
  exchange_turn_ = take(sizeof(int), "layers of one row");
  const DevicePointer at = take(floats * sizeof(float), "layers of one row");
  upload_bytes(at, absent.data(), floats * sizeof(float));
  exchange_ = at;  // last: nothing is launched on a part of this
}

void CudaBackend::launch_resident() {
  const std::vector<gpu::LayerArgs> layers = std::exchange(resident_, {});
  if (layers_there_ + static_cast<int64_t>(layers.size()) > kKnown) {
    // What runs was given to the stream before what takes its place.
    for (auto& [begins, known] : known_layers_) known.layers.clear();
    layers_there_ = 0;
  }
  gpu::ResidentArgs a{};
  a.places = places_of(shape_);
  if (!exchange_) place_exchange(static_cast<size_t>(a.places.floats) * gpu::kExchangeTurns);
  a.exchange = pointer_to<float>(exchange_);
  a.turn = pointer_to<int>(exchange_turn_);
  for (const gpu::LayerArgs& layer : layers)
    a.layer[a.count++] = pointer_to<const gpu::LayerArgs>(layer_on_device(layer));
  a.arrived = pointer_to<int>(rows_routed_);
  // Not by launch(), which would let a norm that waits for these layers go first.
  ++counters_.joins;
  const bool timed = options_.resident == Resident::kTimed;
  if (timed && !clocks_)
    clocks_ = take(static_cast<size_t>(device_->info().multiprocessors) * sizeof(gpu::BlockClocks),
                   "clocks");
  a.clocks = pointer_to<gpu::BlockClocks>(clocks_);
  timed_layers_ = a.count;
  device_->launch(kernel_id(resident_kernel(shape_, resident_router_, timed)),
                  {device_->info().multiprocessors, 1, 1, gpu::kResidentShared},
                  gpu::kResidentThreads, &a, sizeof a);
}

// Of the last launch, by layers that have one in front of them and one behind.
std::string CudaBackend::own_times() {
  if (!clocks_ || timed_layers_ < 3) return {};
  std::vector<gpu::BlockClocks> blocks(static_cast<size_t>(device_->info().multiprocessors));
  const size_t bytes = blocks.size() * sizeof(gpu::BlockClocks);
  wait();
  device_->download(blocks.data(), clocks_, {bytes, 1, bytes, bytes});
  constexpr const char* kNames[gpu::kMarks] = {
      "norm", "first products", "KDA",    "absent", "gated norm", "output projection",
      "norm", "router",         "scores", "choice", "asked",      "shared",
      "up",   "others",         "staged", "down",   "sum"};
  const double layers = timed_layers_ - 2;
  double mean[gpu::kMarks] = {}, last[gpu::kMarks] = {}, all = 0;
  // Of layers by marks: when the last block was there.
  std::vector<double> latest(static_cast<size_t>(timed_layers_) * gpu::kMarks, 0);
  const auto index = [](int layer, int mark) {
    return static_cast<size_t>(layer) * gpu::kMarks + static_cast<size_t>(mark);
  };
  const auto start = std::ranges::min(blocks, {}, [](const auto& b) { return b.nanoseconds[0]; });
  for (const gpu::BlockClocks& b : blocks) {
    const double cycles = static_cast<double>(b.cycles[1] - b.cycles[0]);
    const double us =
        cycles > 0 ? static_cast<double>(b.nanoseconds[1] - b.nanoseconds[0]) / cycles / 1e3 : 0;
    const double offset = static_cast<double>(b.nanoseconds[0] - start.nanoseconds[0]) / 1e3;
    for (int l = 0; l < timed_layers_; ++l)
      for (int p = 0; p < gpu::kMarks; ++p) {
        const double since = p > 0 ? static_cast<double>(b.end[l][p] - b.end[l][p - 1])
                                   : static_cast<double>(b.end[l][p] - b.begin[l]);
        if (l > 0 && l + 1 < timed_layers_)
          mean[p] += since * us / layers / static_cast<double>(blocks.size());
        double& when = latest[index(l, p)];
        when = std::max(when, offset + static_cast<double>(b.end[l][p] - b.cycles[0]) * us);
      }
  }
  for (int l = 1; l + 1 < timed_layers_; ++l)
    for (int p = 0; p < gpu::kMarks; ++p) {
      const size_t i = index(l, p);
      last[p] += (latest[i] - latest[i - 1]) / layers;
    }
  for (const double part : mean) all += part;
  std::string text = cat(tenths(all), " us a layer (of a block, of the last one)");
  for (int p = 0; p < gpu::kMarks; ++p)
    text += cat("; ", kNames[p], " ", tenths(mean[p]), ", ", tenths(last[p]));
  return text;
}

}  // namespace spk::cuda
