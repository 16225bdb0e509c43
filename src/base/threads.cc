#include "base/threads.h"

#include "base/error.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

namespace spk {
namespace {

// About 50 us of polling: longer than the gap between two verbs of a decode step, shorter than a
// time slice by far.
constexpr int kSpinRounds = 1500;

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // 10 to 40 ns; `yield` is a no-op on most cores
#endif
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The first allowed processor of each allowed core.
std::vector<int> allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  std::set<std::string> seen;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string siblings =
        first_line(cat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    if (siblings.empty() || seen.insert(siblings).second) cores.push_back(cpu);
  }
  return cores;
}

// Processors' worth of time that the control group grants ("quota period" or "max period"), 0: no
// limit.
int quota() {
  const std::string line = first_line("/sys/fs/cgroup/cpu.max");
  double granted = 0, period = 0;
  std::istringstream in(line);
  if (!(in >> granted >> period) || granted <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>(std::ceil(granted / period)));
}

}  // namespace

int physical_cores() {
  int cores = static_cast<int>(allowed_cores().size());
  if (cores == 0) cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int limit = quota();
  return limit > 0 ? std::min(cores, limit) : cores;
}

WorkerTeam::WorkerTeam(int threads, bool pin)
    : size_(threads > 0 ? threads : physical_cores()),
      // With more workers than cores, polling takes the processor from the one that is waited for.
      spin_rounds_(size_ <= physical_cores() ? kSpinRounds : 0),
      errors_(static_cast<size_t>(size_)) {
  const std::vector<int> cores = pin ? allowed_cores() : std::vector<int>();
  threads_.reserve(static_cast<size_t>(size_ - 1));
  for (int worker = 1; worker < size_; ++worker) {
    try {
      threads_.emplace_back([this, worker] { work(worker); });
    } catch (const std::system_error& e) {
      stop_and_join();
      fail_resource("threads: expected to start ", size_ - 1,
                    " beside the caller, the system gave ", threads_.size(), " (", e.what(), ")");
    }
    if (cores.empty()) continue;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores[static_cast<size_t>(worker) % cores.size()], &set);
    pthread_setaffinity_np(threads_.back().native_handle(), sizeof set, &set);  // a wish
  }
}

WorkerTeam::~WorkerTeam() { stop_and_join(); }

void WorkerTeam::stop_and_join() {
  stop_.store(true);
  state_.fetch_add(2);
  state_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerTeam::execute(int worker) noexcept {
  try {
    fn_(context_, worker, size_);
  } catch (...) {
    errors_[static_cast<size_t>(worker)] = std::current_exception();
  }
}

void WorkerTeam::wait_for_zero(std::atomic<uint32_t>& count) const {
  int spins = spin_rounds_;
  uint32_t left;
  while ((left = count.load()) != 0) {
    if (spins-- > 0) {
      pause_processor();
    } else {
      count.wait(left);
    }
  }
}

// A worker first announces itself in inside_ and then looks at state_ again; the caller first
// closes the loop in state_ and then waits for inside_ to become 0. All of it is sequentially
// consistent, so either the worker sees a closed loop and turns back, or the caller sees the worker
// and waits: nobody runs a loop that has ended.
void WorkerTeam::run_erased(Mode mode, Erased fn, void* context) {
  SPK_CHECK(!running_);
  running_ = true;
  mode_ = mode;
  fn_ = fn;
  context_ = context;
  if (size_ > 1) {
    if (mode == Mode::kEveryWorker) missing_.store(static_cast<uint32_t>(size_ - 1));
    state_.fetch_add(3);  // the next number, open
    state_.notify_all();  // no system call when nobody sleeps
  }
  execute(0);
  if (size_ > 1) {
    if (mode == Mode::kEveryWorker) wait_for_zero(missing_);
    state_.fetch_sub(1);
    wait_for_zero(inside_);
  }
  running_ = false;
  for (std::exception_ptr& error : errors_) {
    if (!error) continue;
    const std::exception_ptr first = error;
    std::fill(errors_.begin(), errors_.end(), nullptr);
    std::rethrow_exception(first);
  }
}

void WorkerTeam::work(int worker) {
  uint32_t seen = 0;  // the state that holds nothing for this worker
  for (;;) {
    int spins = spin_rounds_;
    uint32_t now;
    while ((now = state_.load()) == seen) {
      if (spins-- > 0) {
        pause_processor();
      } else {
        state_.wait(seen);
      }
    }
    if (stop_.load()) return;
    if (now % 2 == 0) {  // over before this worker came
      seen = now;
      continue;
    }
    inside_.fetch_add(1);
    if (state_.load() == now) {
      execute(worker);
      seen = now;
      if (mode_ == Mode::kEveryWorker && missing_.fetch_sub(1) == 1) missing_.notify_one();
    }
    if (inside_.fetch_sub(1) == 1) inside_.notify_one();
  }
}

}  // namespace spk
