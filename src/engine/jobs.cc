#include "engine/jobs.h"

#include "base/device_lost.h"
#include "base/error.h"
#include "engine/job_run.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace spk {

std::vector<JobEvent> Job::take(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, wait, [&] { return !events_.empty(); });
  return std::exchange(events_, {});
}

void Job::push(std::vector<JobEvent> events) {
  if (events.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  for (JobEvent& event : events) event.made = now;
  {
    const std::lock_guard lock(mutex_);
    std::move(events.begin(), events.end(), std::back_inserter(events_));
  }
  arrived_.notify_one();
}

Jobs::Jobs(size_t limit, Load load)
    : limit_(limit), thread_([this, load = std::move(load)] { loop(load); }) {}

Jobs::~Jobs() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = stopping_ = true;
  }
  cancel_all();
  changed_.notify_all();
  thread_.join();
}

// When a client last had its turn, 0: not lately.
uint64_t Jobs::last_turn(std::string_view client) const {
  const auto at = std::find(served_.begin(), served_.end(), client);
  return at == served_.end() ? 0 : static_cast<uint64_t>(at - served_.begin()) + 1;
}

// Waiting jobs in the order in which they will be served: first everybody's first, then everybody's
// second, and so on.
std::vector<const Job*> Jobs::order() const {
  struct Rank {
    size_t turn;
    uint64_t last;
    const Job* job;
  };
  std::unordered_map<std::string_view, size_t> turns;
  std::vector<Rank> ranked;
  for (const auto& job : queue_) {
    const std::string_view client = job->request().client;
    ranked.push_back({turns[client]++, last_turn(client), job.get()});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const Rank& a, const Rank& b) {
    return std::tie(a.turn, a.last) < std::tie(b.turn, b.last);
  });
  std::vector<const Job*> out;
  out.reserve(ranked.size());
  for (const Rank& rank : ranked) out.push_back(rank.job);
  return out;
}

std::shared_ptr<Job> Jobs::submit(JobRequest request) {
  auto job = std::make_shared<Job>(std::move(request));
  {
    const std::lock_guard lock(mutex_);
    // Those who have gone no longer count.
    std::erase_if(queue_, [](const auto& waiting) { return waiting->cancel_.load(); });
    if (closed_ || queue_.size() >= limit_) {
      const auto before = static_cast<double>(queue_.size() + (running_ ? 1 : 0));
      throw QueueFull{queue_.size(), before * job_seconds_};
    }
    queue_.push_back(job);
  }
  changed_.notify_all();
  return job;
}

size_t Jobs::position(const Job& job) const {
  const std::lock_guard lock(mutex_);
  const std::vector<const Job*> jobs = order();
  const auto at = std::find(jobs.begin(), jobs.end(), &job);
  if (at == jobs.end()) return 0;
  const auto before =
      std::count_if(jobs.begin(), at, [](const Job* other) { return !other->cancel_.load(); });
  return static_cast<size_t>(before) + (running_ ? 1 : 0);
}

bool Jobs::answer_now(std::string_view id) {
  const std::lock_guard lock(mutex_);
  if (running_ && running_->request().id == id) {
    running_->answer_now();
    return true;
  }
  for (const auto& job : queue_) {
    if (job->request().id == id) {
      job->answer_now();
      return true;
    }
  }
  return false;
}

std::optional<double> Jobs::bandwidth() {
  const std::lock_guard lock(mutex_);
  if (!bandwidth_ && !measure_) {
    measure_ = true;
    changed_.notify_all();
  }
  return bandwidth_;
}

size_t Jobs::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(queue_.begin(), queue_.end(),
                                           [](const auto& job) { return !job->cancel_.load(); }));
}

bool Jobs::busy() const {
  const std::lock_guard lock(mutex_);
  return running_ != nullptr;
}

void Jobs::cancel_all() {
  const std::lock_guard lock(mutex_);
  if (running_) running_->cancel();
  for (const auto& job : queue_) job->cancel();
}

bool Jobs::drain(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  closed_ = true;
  return changed_.wait_for(lock, limit, [&] { return queue_.empty() && !running_; });
}

void Jobs::loop(const Load& load) {
  try {
    engine_ = load();
    SPK_CHECK(engine_ != nullptr);
    state_.store(State::kReady);
  } catch (...) {
    failure_ = std::current_exception();
    state_.store(State::kFailed);
    return;
  }
  // Nobody will serve what waits: each is told, and nobody new gets in line.
  const auto fail = [&](std::unique_lock<std::mutex>& lock) {
    failure_ = std::current_exception();
    closed_ = true;
    running_.reset();
    state_.store(State::kFailed);
    for (const auto& job : std::exchange(queue_, {})) {
      JobEvent event;
      event.kind = JobEvent::Kind::kFailed;
      event.text = "the server failed while this request waited";
      job->push({std::move(event)});
    }
    lock.unlock();
    changed_.notify_all();
  };
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || measure_ || !queue_.empty(); });
    if (queue_.empty() && stopping_) break;
    if (queue_.empty()) {
      lock.unlock();
      double measured = 0;
      try {
        measured = engine_->backend().read_bandwidth();
      } catch (const DeviceLost&) {
        lock.lock();
        return fail(lock);
      } catch (const Error&) {  // no room for it: no figure
      }
      lock.lock();
      bandwidth_ = measured;
      measure_ = false;
      continue;
    }
    const Job* next = order().front();
    const auto at = std::find_if(queue_.begin(), queue_.end(),
                                 [&](const auto& job) { return job.get() == next; });
    running_ = *at;
    queue_.erase(at);
    constexpr size_t kRemembered = 256;
    std::erase(served_, running_->request().client);
    served_.push_back(running_->request().client);
    if (served_.size() > kRemembered) served_.pop_front();
    lock.unlock();
    const auto start = std::chrono::steady_clock::now();
    try {
      JobRun(*engine_, *running_).run();
    } catch (const DeviceLost&) {
      lock.lock();
      return fail(lock);
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    lock.lock();
    job_seconds_ += 0.25 * (seconds - job_seconds_);
    running_.reset();
    changed_.notify_all();
  }
  state_.store(State::kClosed);
}

}  // namespace spk
