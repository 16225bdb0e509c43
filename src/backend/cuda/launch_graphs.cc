#include "backend/cuda/launch_graphs.h"

#include <algorithm>
#include <cstring>

namespace spk::cuda {
namespace {

constexpr size_t kAlign = 16;  // of arguments in the blob
// A step goes to the device in pieces, so that it works while the host gathers the rest: the first
// is small, each next one twice as large.
constexpr size_t kFirst = 16;
constexpr size_t kMost = 256;
constexpr size_t kLeast = 8;        // fewer are not worth a graph
constexpr size_t kKept = 384;       // row counts x segments of a context x their turns x pieces
constexpr int kCaptureRelaxed = 2;  // other threads may call the driver meanwhile
constexpr unsigned kNoFlags = 0;

}  // namespace

LaunchGraphs::LaunchGraphs(const Driver& driver, CuStream stream, bool use, bool overlap)
    : d_(driver), stream_(stream), use_(use), overlap_(overlap), piece_(kFirst) {
  items_.reserve(kMost);
}

// Results are not looked at: after a device error every call fails.
LaunchGraphs::~LaunchGraphs() {
  for (const Known& k : known_)
    if (k.exec) d_.graph_exec_destroy(k.exec);
}

void LaunchGraphs::add(CuFunction function, const Grid& grid, int threads, const void* arguments,
                       size_t bytes) {
  Item item;
  item.function = function;
  item.grid[0] = static_cast<unsigned>(grid.x);
  item.grid[1] = static_cast<unsigned>(grid.y);
  item.grid[2] = static_cast<unsigned>(grid.z);
  item.threads = static_cast<unsigned>(threads);
  item.shared = static_cast<unsigned>(grid.shared);
  item.at = blob_.size();
  item.bytes = bytes;
  blob_.resize((blob_.size() + bytes + kAlign - 1) / kAlign * kAlign);
  std::memcpy(blob_.data() + item.at, arguments, bytes);
  items_.push_back(item);
  if (!use_) {
    flush();
  } else if (items_.size() >= piece_) {
    const size_t next = std::min(2 * piece_, kMost);
    flush();
    piece_ = next;
  }
}

void LaunchGraphs::add(const CuCopy2D& copy) { add(nullptr, {0, 0, 0}, 0, &copy, sizeof copy); }

void LaunchGraphs::run(const std::vector<Item>& items, std::vector<std::byte>& blob) {
  for (const Item& item : items) {
    std::byte* arguments = blob.data() + item.at;
    if (item.function == nullptr) {
      CuCopy2D copy;
      std::memcpy(&copy, arguments, sizeof copy);
      check(d_.copy_2d(&copy, stream_), "cuMemcpy2DAsync");
      continue;
    }
    CuLaunchAttribute early;
    const CuLaunch launch{{item.grid[0], item.grid[1], item.grid[2]},
                          {item.threads, 1, 1},
                          item.shared,
                          stream_,
                          &early,
                          overlap_ ? 1u : 0u};
    void* list[] = {arguments};
    check(d_.launch(&launch, item.function, list, nullptr), "cuLaunchKernelEx");
  }
}

uint64_t LaunchGraphs::hash() const {
  uint64_t h = 0xcbf29ce484222325u;
  const auto mix = [&](uint64_t word) {
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
  };
  for (const Item& i : items_) {
    mix(reinterpret_cast<uintptr_t>(i.function));
    mix(uint64_t{i.grid[0]} << 32 | i.grid[1]);
    mix(uint64_t{i.grid[2]} << 32 | i.threads);
  }
  for (size_t at = 0; at + 8 <= blob_.size(); at += 8) {  // its size is a multiple of kAlign
    uint64_t word = 0;
    std::memcpy(&word, blob_.data() + at, 8);
    mix(word);
  }
  return h;
}

bool LaunchGraphs::same(const Known& known) const {
  return known.items.size() == items_.size() && known.blob == blob_ &&
         std::equal(items_.begin(), items_.end(), known.items.begin(),
                    [](const Item& a, const Item& b) {
                      return a.function == b.function && a.threads == b.threads && a.at == b.at &&
                             std::equal(a.grid, a.grid + 3, b.grid);
                    });
}

CuGraphExec LaunchGraphs::capture(Known& known) {
  check(d_.capture_begin(stream_, kCaptureRelaxed), "cuStreamBeginCapture");
  CuGraph graph = nullptr;
  try {
    run(known.items, known.blob);
  } catch (...) {
    d_.capture_end(stream_, &graph);  // else the stream stays unusable behind the first error
    if (graph) d_.graph_destroy(graph);
    throw;
  }
  check(d_.capture_end(stream_, &graph), "cuStreamEndCapture");
  CuGraphExec exec = nullptr;
  const CuResult made = d_.graph_instantiate(&exec, graph, kNoFlags);
  d_.graph_destroy(graph);
  check(made, "cuGraphInstantiate");
  return exec;
}

void LaunchGraphs::forget_oldest() {
  // In flight perhaps: the driver keeps what it still needs.
  Known& oldest = known_.back();
  if (oldest.exec) check(d_.graph_exec_destroy(oldest.exec), "cuGraphExecDestroy");
  by_hash_.erase(oldest.hash);
  known_.pop_back();
}

void LaunchGraphs::flush() {
  piece_ = kFirst;
  if (items_.empty()) return;
  if (!use_ || items_.size() < kLeast) {
    run(items_, blob_);
    items_.clear();
    blob_.clear();
    return;
  }
  const uint64_t key = hash();
  const auto found = by_hash_.find(key);
  if (found != by_hash_.end() && same(*found->second)) {
    Known& known = *found->second;
    known_.splice(known_.begin(), known_, found->second);
    if (!known.exec) known.exec = capture(known);
    check(d_.graph_launch(known.exec, stream_), "cuGraphLaunch");
  } else {
    run(items_, blob_);
    if (found == by_hash_.end()) {  // two with one hash: the first stays
      known_.push_front({key, items_, blob_, nullptr});
      by_hash_.emplace(key, known_.begin());
      if (known_.size() > kKept) forget_oldest();
    }
  }
  items_.clear();
  blob_.clear();
}

}  // namespace spk::cuda
