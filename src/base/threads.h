// A team of workers for fork-join loops: the caller is worker 0, a join costs about a microsecond.
//
// Owns its threads, never a task queue: one loop at a time, started by one thread, and no loop
// inside a loop. Waiting workers spin for a short bounded time and then sleep, so that a decode
// step pays no wake-up and an idle program no processor time. Nothing is allocated by a run.
//
// for_each_task() waits only for workers that have begun a task: one that still sleeps, or whose
// processor is busy with something else, is left out of the loop, and the others do its share. On a
// shared machine a join would otherwise last until the system's scheduler comes round to the
// missing worker: milliseconds instead of microseconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace spk {

// Processors this process may use, hardware threads of one core counted once, and not more than its
// container's quota.
int physical_cores();

class WorkerTeam {
 public:
  // threads 0: physical_cores(). pin: workers 1.. stay on one core each; the caller is left where
  // it is.
  explicit WorkerTeam(int threads = 0, bool pin = false);
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  int size() const { return size_; }

  // fn(worker, workers) on every worker; returns when all are done. The first exception (by worker)
  // is thrown here.
  template <typename F>
  void run(F&& fn) {
    start(Mode::kEveryWorker, fn);
  }

  // fn(first, last) over [0, count), one contiguous piece a worker.
  template <typename F>
  void parallel_for(int64_t count, F&& fn) {
    run([&](int worker, int workers) {
      const int64_t first = count * worker / workers, last = count * (worker + 1) / workers;
      if (first < last) fn(first, last);
    });
  }

  // fn(task, worker) for each task of [0, count), taken in order by whoever is free.
  template <typename F>
  void for_each_task(int64_t count, F&& fn) {
    next_.store(0, std::memory_order_relaxed);
    start(Mode::kWhoeverIsFree, [&](int worker, int) {
      for (;;) {
        const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
        if (task >= count) return;
        fn(task, worker);
      }
    });
  }

 private:
  using Erased = void (*)(void*, int, int);
  enum class Mode : uint8_t { kEveryWorker, kWhoeverIsFree };

  template <typename F>
  void start(Mode mode, F&& fn) {
    using Fn = std::remove_reference_t<F>;
    run_erased(
        mode, [](void* f, int worker, int workers) { (*static_cast<Fn*>(f))(worker, workers); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }
  void run_erased(Mode mode, Erased fn, void* context);
  void wait_for_zero(std::atomic<uint32_t>& count) const;
  void work(int worker);
  void stop_and_join();
  void execute(int worker) noexcept;

  int size_;
  int spin_rounds_;
  bool running_ = false;

  // The loop: changed by the caller only while it is closed and nobody is inside.
  Mode mode_ = Mode::kEveryWorker;
  Erased fn_ = nullptr;
  void* context_ = nullptr;
  std::vector<std::exception_ptr> errors_;  // [size]
  std::vector<std::thread> threads_;        // workers 1..

  // A cache line each: the state is polled by all while the others are written.
  alignas(64) std::atomic<uint32_t> state_{
      0};  // 2 * number of the loop + 1 while it may be entered
  alignas(64) std::atomic<uint32_t> inside_{0};  // workers that may be looking at the loop
  std::atomic<uint32_t> missing_{0};             // kEveryWorker: workers that are not done
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<int64_t> next_{0};
};

}  // namespace spk
