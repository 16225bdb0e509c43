#include "base/threads.h"

#include "base/bandwidth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace spk {
namespace {

TEST(WorkerTeam, EveryWorkerRunsOnceAndResultsAreVisible) {
  for (int size : {1, 2, 3, 8}) {
    WorkerTeam team(size);
    ASSERT_EQ(team.size(), size);
    std::vector<int64_t> seen(static_cast<size_t>(size));
    for (int64_t round = 1; round <= 2000; ++round) {
      team.run([&](int worker, int workers) {
        ASSERT_EQ(workers, size);
        seen[static_cast<size_t>(worker)] += round;  // plain memory: the join must publish it
      });
    }
    for (int64_t sum : seen) EXPECT_EQ(sum, 2000 * 2001 / 2);
  }
}

TEST(WorkerTeam, RangesAreCoveredOnce) {
  WorkerTeam team(3);
  for (int64_t count : {0, 1, 2, 3, 7, 1000}) {
    std::vector<int> parts(static_cast<size_t>(count)), tasks(parts);
    team.parallel_for(count, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) ++parts[static_cast<size_t>(i)];
    });
    team.for_each_task(count, [&](int64_t task, int worker) {
      ASSERT_LT(worker, 3);
      ++tasks[static_cast<size_t>(task)];
    });
    EXPECT_EQ(parts, std::vector<int>(static_cast<size_t>(count), 1));
    EXPECT_EQ(tasks, parts);
  }
}

TEST(WorkerTeam, ExceptionsReachTheCallerAndTheTeamGoesOn) {
  WorkerTeam team(4);
  for (int thrower = 0; thrower < 4; ++thrower) {
    EXPECT_THROW(team.run([&](int worker, int) {
      if (worker == thrower) throw std::runtime_error("task failed");
    }),
                 std::runtime_error);
    std::atomic<int> count{0};
    team.run([&](int, int) { ++count; });
    EXPECT_EQ(count.load(), 4);
  }
}

// After the polling time workers sleep, and a run wakes them.
TEST(WorkerTeam, SleepersWakeUp) {
  WorkerTeam team(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> count{0};
    team.run([&](int worker, int) {
      if (worker == 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the caller sleeps too
      ++count;
    });
    EXPECT_EQ(count.load(), 2);
  }
}

TEST(WorkerTeam, PinnedTeamWorks) {
  WorkerTeam team(2, true);
  std::atomic<int> count{0};
  team.run([&](int, int) { ++count; });
  EXPECT_EQ(count.load(), 2);
}

TEST(WorkerTeam, DefaultSizeIsTheProcessorsWeMayUse) {
  EXPECT_GE(physical_cores(), 1);
  EXPECT_LE(physical_cores(), static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  EXPECT_EQ(WorkerTeam().size(), physical_cores());
}

TEST(Bandwidth, IsAPlausibleNumber) {
  EXPECT_GE(last_level_cache_bytes(), 64 * 1024);
  const double bandwidth = measure_read_bandwidth(1);
  EXPECT_GT(bandwidth, 5e7);  // emulators included
  EXPECT_LT(bandwidth, 1e13);
}

}  // namespace
}  // namespace spk
