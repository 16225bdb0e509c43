// Launches gathered in pieces, the last one when something needs their results; a piece runs as one
// graph when the same launches come again.
//
// A decode step is hundreds of launches with the same arguments each time (what differs is in
// StepInfo, on the device). One by one they cost the host 3 to 4 us each; as the nodes of a graph,
// well below one. What comes once runs as it is; the second time it is captured; from then on it is
// one call. Owned by a device; called by its thread, with its context current.
#pragma once

#include "backend/cuda/device.h"
#include "backend/cuda/driver.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

namespace spk::cuda {

class LaunchGraphs {
 public:
  // `use` false: everything runs as it comes, the form that graphs are checked against. `overlap`:
  // kernels begin before the one in front has ended (programmatic dependent launch, common.cuh).
  LaunchGraphs(const Driver& driver, CuStream stream, bool use, bool overlap);
  LaunchGraphs(const LaunchGraphs&) = delete;
  LaunchGraphs& operator=(const LaunchGraphs&) = delete;
  ~LaunchGraphs();

  void add(CuFunction function, const Grid& grid, int threads, const void* arguments, size_t bytes);
  void add(const CuCopy2D& copy);
  // Everything gathered is in the stream when it returns.
  void flush();

 private:
  // A launch (function set) or a copy; its arguments, or the copy, are in the blob.
  struct Item {
    CuFunction function = nullptr;
    unsigned grid[3] = {0, 0, 0};
    unsigned threads = 0;
    unsigned shared = 0;
    uint64_t at = 0, bytes = 0;
  };
  struct Known {
    uint64_t hash = 0;
    std::vector<Item> items;
    std::vector<std::byte> blob;
    CuGraphExec exec = nullptr;
  };
  using Place = std::list<Known>::iterator;

  void run(const std::vector<Item>& items, std::vector<std::byte>& blob);
  CuGraphExec capture(Known& known);
  bool same(const Known& known) const;
  uint64_t hash() const;
  void forget_oldest();

  const Driver& d_;
  CuStream stream_;
  bool use_, overlap_;
  size_t piece_;  // items that make the next piece
  std::vector<Item> items_;
  std::vector<std::byte> blob_;
  std::list<Known> known_;  // the latest first
  std::unordered_map<uint64_t, Place> by_hash_;
};

}  // namespace spk::cuda
