// Layers of one row by blocks that stay (resident.cuh): the bits of the verbs, whatever comes in
// which order. On emulated devices of both orders, or on the GPU (emulated_device.h).
#include "backend/cuda/resident_pieces.h"
#include "base/error.h"
#include "support/verbs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace spk {
namespace {

using test::Verbs;

ModelShape layer_shape(int64_t head_dim, int64_t kernel) {
  ModelShape s = test::expert_shape(512, 128, 192);
  s.head_dim = head_dim;
  s.heads = 512 / head_dim;
  s.conv_kernel = kernel;
  s.experts = 40;  // not a multiple of a warp, nor of the router's rows of a piece
  s.groups = 4;
  s.keep_groups = 3;
  s.top_k = 6;
  return s;
}

// Buffers of one run; two runs start alike.
struct Run {
  Scratch t;
  std::vector<LayerState> states;
};

struct Stack {
  Stack(const ModelShape& s, int layers, int blocks, Format router = Format::kBf16,
        Resident resident = Resident::kOn)
      : shape(s), v(s, test::Family::kCuda, MoeKernel::kPacked, blocks, resident) {
    const int64_t n = s.heads * s.head_dim;
    const auto normal = [&](int64_t, int64_t) { return v.normal(); };
    const auto near_one = [&](int64_t, int64_t) { return 1 + 0.1 * v.normal(); };
    layers_of.resize(v.size());
    const auto set = [&](int layer, auto member, const Verbs::Weights& made) {
      for (size_t i = 0; i < v.size(); ++i)
        member(layers_of[i][static_cast<size_t>(layer)]) = made[i];
    };
    for (auto& of : layers_of) of.resize(static_cast<size_t>(layers));
    for (int l = 0; l < layers; ++l) {
      set(
          l, [](Layer& x) -> Weight& { return x.attn_norm; }, v.vector(s.hidden, near_one));
      set(
          l, [](Layer& x) -> Weight& { return x.ffn_norm; }, v.vector(s.hidden, near_one));
      for (const auto member : {&Kda::q, &Kda::k, &Kda::v, &Kda::f, &Kda::g})
        set(
            l, [=](Layer& x) -> Weight& { return x.kda.*member; },
            v.weight(n, s.hidden, Format::kFp8, 0.3));
      set(
          l, [](Layer& x) -> Weight& { return x.kda.b; },
          v.weight(s.heads, s.hidden, Format::kBf16, 0.3));
      set(
          l, [](Layer& x) -> Weight& { return x.kda.o; }, v.weight(s.hidden, n, Format::kFp8, 0.3));
      v.uploading("q_conv1d.weight");
      for (const auto member : {&Kda::conv_q, &Kda::conv_k, &Kda::conv_v})
        set(
            l, [=](Layer& x) -> Weight& { return x.kda.*member; },
            v.matrix(n, s.conv_kernel, normal));
      v.uploading("test");
      set(
          l, [](Layer& x) -> Weight& { return x.kda.a_log; }, v.vector(s.heads, normal));
      set(
          l, [](Layer& x) -> Weight& { return x.kda.dt_bias; }, v.vector(n, normal));
      set(
          l, [](Layer& x) -> Weight& { return x.kda.o_norm; }, v.vector(s.head_dim, normal));
      const std::vector<Moe> moe = test::random_moe(v, Format::kMxfp4, Format::kFp8, 4, 5);
      const Verbs::Weights gate = v.weight(s.experts, s.hidden, router, 0.2);
      for (size_t i = 0; i < v.size(); ++i) {
        Layer& of = layers_of[i][static_cast<size_t>(l)];
        of.is_moe = true;
        of.moe = moe[i];
        of.moe.router = gate[i];
        of.moe.index = l;
      }
    }
  }

  std::vector<Run> run() {
    const int64_t n = shape.heads * shape.head_dim;
    std::vector<Run> runs(v.size());
    const auto rows = [&](int64_t count, int64_t cols, double scale) {
      return v.rows(count, cols, [=](int64_t r, int64_t c) {
        return scale * std::sin(static_cast<double>(r * 37 + c * 11 + count));
      });
    };
    const auto each = [&](auto member, const std::vector<Rows>& made) {
      for (size_t i = 0; i < runs.size(); ++i) member(runs[i]) = made[i];
    };
    for (const auto member :
         {&Scratch::q, &Scratch::k, &Scratch::v, &Scratch::f, &Scratch::g, &Scratch::mix})
      each([=](Run& r) -> Rows& { return r.t.*member; }, rows(1, n, 0));
    for (const auto member : {&Scratch::h, &Scratch::o})
      each([=](Run& r) -> Rows& { return r.t.*member; }, rows(1, shape.hidden, 0));
    each([](Run& r) -> Rows& { return r.t.x; }, rows(1, shape.hidden, 1));
    each([](Run& r) -> Rows& { return r.t.beta; }, rows(1, shape.heads, 0));
    each([](Run& r) -> Rows& { return r.t.route_weight; }, rows(1, shape.top_k, 0));
    const std::vector<int32_t> none(static_cast<size_t>(shape.top_k));
    const auto ids = v.ints(none, shape.top_k);
    for (size_t i = 0; i < runs.size(); ++i) {
      runs[i].t.route_id = ids[i];
      runs[i].states.resize(layers_of[i].size());
    }
    for (size_t l = 0; l < layers_of[0].size(); ++l) {
      const auto state = [&](auto member, const std::vector<Rows>& made) {
        for (size_t i = 0; i < runs.size(); ++i) runs[i].states[l].*member = made[i];
      };
      state(&LayerState::kda_state, rows(1, n * shape.head_dim, 1));
      for (Run& r : runs) {  // states have no gaps
        Rows& flat = r.states[l].kda_state;
        flat = {flat.buffer, flat.offset, n, shape.head_dim, shape.head_dim};
      }
      state(&LayerState::conv_tail, rows(3 * (shape.conv_kernel - 1), n, 1));
      state(&LayerState::record_in, rows(3 * kMaxVerify, n, 1));
      for (const auto member :
           {&LayerState::record_k, &LayerState::record_u, &LayerState::record_g})
        state(member, rows(kMaxVerify, n, -0.3));
    }
    return runs;
  }

  ModelShape shape;
  Verbs v;
  std::vector<std::vector<Layer>> layers_of;  // by back end
};

void mix_by_verbs(Backend& b, const Kda& w, const LayerState& state, const Scratch& t) {
  const Weight* in[] = {&w.q, &w.k, &w.v, &w.f, &w.g, &w.b};
  const Rows out[] = {t.q, t.k, t.v, t.f, t.g, t.beta};
  b.matmul_many(t.h, in, out);
  b.conv_step(t.q, t.k, t.v, w, state);
  b.kda_gate(t.f, t.beta, w);
  b.kda_mix(t.q, t.k, t.v, t.f, t.beta, state, t.mix);
  b.norm_gate(t.mix, t.g, w.o_norm);
  b.matmul(t.mix, w.o, t.o);
}
void feed_by_verbs(Backend& b, const Moe& w, const Step& step, const Scratch& t, int64_t top_k) {
  const auto columns = [&](const Ints& table) {
    return table ? table.slice_cols(w.index * top_k, top_k) : Ints{};
  };
  b.route(t.h, w, columns(step.routes_in), t.route_id, t.route_weight);
  b.experts(t.h, w, t.route_id, t.route_weight, t.o);
}

// What of a layer is fused; the rest by verbs.
enum Fused { kNothing, kMixer = 1, kFeed = 2, kBoth = 3 };
void run_layer(Backend& b, const Layer& l, const LayerState& state, const Step& step,
               const Scratch& t, int fused, int64_t top_k) {
  b.rms_norm(t.x, l.attn_norm, t.h);
  (fused & kMixer) != 0 ? b.fused(Block::kKda, l, state, t) : mix_by_verbs(b, l.kda, state, t);
  b.add_rms_norm(t.x, t.o, l.ffn_norm, t.h);
  (fused & kFeed) != 0 ? b.fused(Block::kMoe, l, state, t)
                       : feed_by_verbs(b, l.moe, step, t, top_k);
  b.add(t.x, t.o);
}

struct Pass {
  StepKind kind;
  int64_t fold;
};

// Every pass of one row, by verbs and with `fused` of each layer, bit for bit.
void expect_same(Stack& stack, const std::vector<Pass>& passes, const std::vector<int>& fused,
                 bool forced = false) {
  std::vector<Run> by_verbs = stack.run(), resident = stack.run();
  const int64_t top_k = stack.shape.top_k;
  std::vector<int32_t> table;
  for (int64_t i = 0; i < top_k * static_cast<int64_t>(fused.size()); ++i)
    table.push_back(static_cast<int32_t>(i * 7 % 13));  // some twice
  const auto routes = stack.v.ints(table, static_cast<int64_t>(table.size()));
  for (size_t i = 1; i < stack.v.size(); ++i) {  // 0 is the reference
    Backend& b = stack.v.backend(i);
    int64_t position = 5;
    for (const Pass& pass : passes) {
      Step step;
      step.kind = pass.kind;
      step.rows = 1;
      step.fold = pass.fold;
      step.first_position = position++;
      if (forced) step.routes_in = routes[i];
      for (Run* run : {&by_verbs[i], &resident[i]}) {
        const auto before = b.counters();
        b.begin(step);
        for (size_t l = 0; l < fused.size(); ++l)
          run_layer(b, stack.layers_of[i][l], run->states[l], step, run->t,
                    run == &by_verbs[i] ? kNothing : fused[l], top_k);
        b.end();
        b.wait();
        if (run == &by_verbs[i]) continue;
        bool whole = true;
        for (const int f : fused) whole = whole && f == kBoth;
        if (whole) {
          EXPECT_EQ(b.counters().joins - before.joins, 1u) << "one launch for all";
        }
      }
      const auto same = [&](const Rows& one, const Rows& other, const std::string& what) {
        const auto count = static_cast<size_t>(one.rows * one.cols);
        std::vector<float> x(count), y(count);
        b.read(one, x.data());
        b.read(other, y.data());
        EXPECT_EQ(x, y) << what << ", position " << step.first_position;
      };
      same(by_verbs[i].t.x, resident[i].t.x, "the residual");
      same(by_verbs[i].t.route_weight, resident[i].t.route_weight, "weights of the choice");
      std::vector<int32_t> ids(static_cast<size_t>(top_k)), others(ids.size());
      b.read(by_verbs[i].t.route_id, ids.data());
      b.read(resident[i].t.route_id, others.data());
      EXPECT_EQ(ids, others);
      for (size_t l = 0; l < fused.size(); ++l) {
        const LayerState &one = by_verbs[i].states[l], &other = resident[i].states[l];
        same(one.kda_state, other.kda_state, cat("state of layer ", l));
        same(one.conv_tail, other.conv_tail, cat("tail of layer ", l));
        same(one.record_in, other.record_in, cat("inputs of layer ", l));
        same(one.record_k, other.record_k, cat("keys of layer ", l));
        same(one.record_u, other.record_u, cat("updates of layer ", l));
        same(one.record_g, other.record_g, cat("gates of layer ", l));
      }
    }
  }
}

const std::vector<Pass> kPasses = {{StepKind::kDecode, 0}, {StepKind::kVerify, 0},
                                   {StepKind::kVerify, 1}, {StepKind::kDecode, 1},
                                   {StepKind::kDecode, 3}, {StepKind::kVerify, 8}};

TEST(CudaResident, LayersHaveTheBitsOfTheVerbs) {
  for (const int64_t head_dim : {128, 64}) {
    Stack stack(layer_shape(head_dim, 4), 3, 1);
    expect_same(stack, kPasses, {kBoth, kBoth, kBoth});
  }
}

// Nine blocks; and more than there are tiles of the output projection and rows of the last product,
// so that some post nothing there. More layers than memories of what is exchanged.
TEST(CudaResident, BlocksBesideEachOther) {
  Stack stack(layer_shape(128, 4), 5, 9);
  expect_same(stack, kPasses, {kBoth, kBoth, kBoth, kBoth, kBoth});
  Stack many(layer_shape(128, 4), 5, 36);
  expect_same(many, {{StepKind::kDecode, 0}, {StepKind::kVerify, 1}},
              {kBoth, kBoth, kBoth, kBoth, kBoth});
}

TEST(CudaResident, OtherTapsAndRouters) {
  Stack stack(layer_shape(128, 2), 1, 8, Format::kF32);
  expect_same(stack, {{StepKind::kDecode, 0}, {StepKind::kVerify, 0}, {StepKind::kDecode, 1}},
              {kBoth});
}

TEST(CudaResident, ThePlanSaysWhetherBlocksStay) {
  const auto text = [](const ModelShape& shape) {
    return Verbs(shape, test::Family::kCuda).backend(1).plan().text;
  };
  EXPECT_NE(text(layer_shape(128, 4)).find(", KDA layers of one row by blocks that stay"),
            std::string::npos);
  ModelShape narrow = layer_shape(128, 4);
  narrow.hidden = 256;
  EXPECT_NE(text(narrow).find("no blocks that stay"), std::string::npos);
}

TEST(CudaResident, HalvesOfLayersBesideVerbs) {
  Stack stack(layer_shape(128, 4), 4, 8);
  expect_same(stack, {{StepKind::kDecode, 0}, {StepKind::kVerify, 0}},
              {kFeed, kMixer, kBoth, kNothing});
}

// The residual behind a launch whose last layer leaves its sum to other launches, or its experts.
TEST(CudaResident, LaunchesEndAnywhere) {
  for (const std::vector<int>& fused : std::vector<std::vector<int>>{
           {kBoth, kMixer}, {kBoth, kBoth, kMixer, kBoth}, {kMixer, kBoth}}) {
    Stack stack(layer_shape(128, 4), static_cast<int>(fused.size()), 8);
    expect_same(stack, {{StepKind::kDecode, 0}, {StepKind::kVerify, 0}}, fused);
  }
}

TEST(CudaResident, ReplayedRoutes) {
  Stack stack(layer_shape(128, 4), 2, 1);
  expect_same(stack, {{StepKind::kDecode, 0}}, {kBoth, kBoth}, true);
}

TEST(CudaResident, TimedLayersAreTheSameAndSayWhereTimeGoes) {
  Stack stack(layer_shape(128, 4), 4, 8, Format::kBf16, Resident::kTimed);
  expect_same(stack, {{StepKind::kDecode, 0}}, {kBoth, kBoth, kBoth, kBoth});
  const std::string times = stack.v.backend(1).own_times();
  for (const char* phase : {" us a layer (of a block, of the last one); norm ", "; KDA ", "; sum "})
    EXPECT_NE(times.find(phase), std::string::npos) << times;
  Stack untimed(layer_shape(128, 4), 1, 1);
  EXPECT_EQ(untimed.v.backend(1).own_times(), "");
}

// ---- what goes through the ring ----

// Every byte of what a layer multiplies with is brought once, by one block, into a slot that it
// fits; norm weights by every block.
TEST(CudaResident, ListsBringEveryWeightOnce) {
  gpu::LayerArgs l{};
  const auto place = [](uint64_t at) { return cuda::pointer_to<const unsigned char>(at); };
  uint64_t next = 4096;
  const auto matrix = [&](int rows, int cols) {
    gpu::Matrix m{};
    m.codes = place(next);
    m.row_bytes = cols;
    m.rows = rows;
    m.cols = cols;
    next += static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
    m.scales = place(next);
    next += 1 << 16;
    return m;
  };
  l.before.w = cuda::pointer_to<const float>(next);
  l.before.cols = l.behind.cols = 512;
  next += 4096;
  l.behind.w = cuda::pointer_to<const float>(next);
  next += 4096;
  std::vector<float> numbers(1 << 16);
  for (const int rows : {1024, 1024, 40}) {
    l.in.p[l.in.count] = {matrix(rows, 512), {numbers.data(), 0}, 0, rows, l.in.groups};
    l.in.groups += (rows + gpu::kTileGroup - 1) / gpu::kTileGroup;
    ++l.in.count;
  }
  l.gate = 1;
  l.out = {matrix(520, 4096), {numbers.data(), 0}, 0, 520, 0};
  l.feeds = 1;
  l.behind.x = {numbers.data(), 0};
  l.router = matrix(40, 1024);
  l.route.experts = 40;
  l.e.shared.gate = matrix(192, 512);
  l.e.shared.up = matrix(192, 512);
  l.e.shared_width = 192;
  l.cut[gpu::kStageIn] = l.cut[gpu::kStageShared] = gpu::cut_tile(512);
  l.cut[gpu::kStageOut] = gpu::cut_tile(4096);
  const gpu::ExchangePlaces places = gpu::exchange_places(1024, 520, 40, 192, 0);
  for (const int64_t blocks : {1, 5, 132}) {
    const cuda::PieceLists lists = cuda::list_pieces(l, places, blocks);
    std::map<const unsigned char*, std::pair<int64_t, int>> brought;  // bytes, times
    for (int64_t block = 0; block < blocks; ++block) {
      const gpu::Piece* const list = lists.pieces.data() + block * lists.stride;
      ASSERT_LT(list[0].bytes, lists.stride);
      for (int i = 1; i <= list[0].bytes; ++i) {
        EXPECT_LE(list[i].bytes, gpu::kSlotCodes);
        EXPECT_LE(list[i].scale_bytes, gpu::kSlotScales);
        EXPECT_EQ(list[i].bytes % 16 + list[i].scale_bytes % 16, 0);
        if (list[i].bytes == 0) continue;
        auto& [bytes, times] = brought[list[i].codes];
        EXPECT_TRUE(times == 0 || bytes == list[i].bytes);
        bytes = list[i].bytes;
        ++times;
      }
    }
    const auto expect_whole = [&](const unsigned char* at, int64_t bytes, int times) {
      const unsigned char* const end = at + bytes;
      while (at < end) {
        const auto found = brought.find(at);
        ASSERT_NE(found, brought.end()) << blocks << " blocks";
        EXPECT_EQ(found->second.second, times);
        at += found->second.first;
        brought.erase(found);
      }
      EXPECT_EQ(at, end);
    };
    for (int k = 0; k < l.in.count; ++k)
      expect_whole(l.in.p[k].w.codes, int64_t{512} * l.in.p[k].rows, 1);
    expect_whole(l.out.w.codes, int64_t{4096} * 520, 1);
    expect_whole(l.router.codes, int64_t{1024} * 40, 1);
    expect_whole(l.e.shared.gate.codes, int64_t{512} * 192, 1);
    expect_whole(l.e.shared.up.codes, int64_t{512} * 192, 1);
    for (const float* const norm : {l.before.w, l.behind.w})
      expect_whole(reinterpret_cast<const unsigned char*>(norm), 512 * 4, static_cast<int>(blocks));
    EXPECT_TRUE(brought.empty());
  }
}

}  // namespace
}  // namespace spk
