#include "support/emulator.h"

#include "base/error.h"

#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

// void spk_switch_stack(void** save, void* load): keeps the callee-saved registers on the stack
// that is left, and takes them from the one that is entered.
extern "C" void spk_switch_stack(void** save, void* load);
extern "C" void spk_fiber_start();
#if defined(__x86_64__)
asm(R"(
.text
.globl spk_switch_stack
.type spk_switch_stack, @function
spk_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size spk_switch_stack, . - spk_switch_stack
.globl spk_fiber_start
.type spk_fiber_start, @function
spk_fiber_start:
  call spk_fiber_main
  ud2
.size spk_fiber_start, . - spk_fiber_start
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl spk_switch_stack
.type spk_switch_stack, %function
spk_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size spk_switch_stack, . - spk_switch_stack
.globl spk_fiber_start
.type spk_fiber_start, %function
spk_fiber_start:
  bl spk_fiber_main
  brk #1
.size spk_fiber_start, . - spk_fiber_start
)");
#else
#error "no fibers for this processor yet"
#endif

namespace spk::emu {

Context* current = nullptr;

namespace {

// Three cache lines more than a power of two, or the tops of all stacks would share one cache set.
constexpr size_t kStack = (64 << 10) + 192;
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kWarpLanes = 32;
constexpr int kTeams = 15;           // barriers of a block beside its own
constexpr size_t kArena = 48 << 10;  // what a block has without asking
constexpr size_t kDynamic = 227 << 10;

enum class State : uint8_t { kReady, kInWarp, kInTeam, kInBlock, kDone };

struct Fiber {
  Context context;
  void* stack_pointer = nullptr;
  State state = State::kReady;
  int team = 0;  // that it waits for
};

// Two sets of values in turn: a fast lane may leave its next value while slow ones read the last.
struct Warp {
  uint64_t values[2][kWarpLanes];
  unsigned round = 0;
  unsigned arrived = 0;
};

struct Block {
  std::vector<Fiber> fibers{kMaxThreads};
  std::vector<Warp> warps{kMaxThreads / kWarpLanes};
  unsigned in_block = 0;
  unsigned in_team[kTeams] = {};
  std::byte* stacks = nullptr;
  alignas(64) std::byte arena[kArena];
  alignas(128) unsigned char dynamic[kDynamic];

  Block() {
    void* memory = mmap(nullptr, kStack * kMaxThreads, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SPK_CHECK(memory != MAP_FAILED);
    stacks = static_cast<std::byte*>(memory);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { munmap(stacks, kStack * kMaxThreads); }

  // The stack may be marked as the frames of an earlier fiber left it.
  __attribute__((no_sanitize("address"))) void start(unsigned index) {
    Fiber& f = fibers[index];
    f.state = State::kReady;
    // As if the fiber had been left by spk_switch_stack and were to return to spk_fiber_start.
    auto* top = reinterpret_cast<uint64_t*>(stacks + kStack * (index + 1));
#if defined(__x86_64__)
    top -= 2;  // keeps the stack 16-byte aligned at the call in spk_fiber_start
    *--top = reinterpret_cast<uint64_t>(&spk_fiber_start);
    for (int i = 0; i < 6; ++i) *--top = 0;
#else
    top -= 20;
    std::fill_n(top, 20, 0);
    top[11] = reinterpret_cast<uint64_t>(&spk_fiber_start);  // x30
#endif
    f.stack_pointer = top;
  }
};

// What a block came to when each of its fibers had its turn.
enum class Turn { kDone, kProgress, kWaits };

struct Machine {
  unsigned threads = 0;
  bool backward = false;
  const std::function<void()>* body = nullptr;
  size_t dynamic_used = 0;
  std::unordered_map<const void*, size_t> shared;  // declaration -> place in the arena
  size_t shared_used = 0;
  std::vector<std::unique_ptr<Block>> idle;  // memory for blocks to come
  void* scheduler = nullptr;
  Block* block = nullptr;  // that runs, and its fiber
  Fiber* running = nullptr;
  bool looked_in_vain = false;
  std::exception_ptr failure;

  void yield() { spk_switch_stack(&running->stack_pointer, scheduler); }

  std::unique_ptr<Block> begin(const Dim& at, const Dim& grid, bool alone) {
    std::unique_ptr<Block> b;
    if (idle.empty()) {
      b = std::make_unique<Block>();
    } else {
      b = std::move(idle.back());
      idle.pop_back();
    }
    const bool known = alone && shared_used > 0;  // all declarations, by a block before
    std::memset(b->arena, 0xff, known ? shared_used : sizeof b->arena);  // NaN
    std::memset(b->dynamic, 0xff, dynamic_used);
    b->in_block = 0;
    std::ranges::fill(b->in_team, 0u);
    for (Warp& w : b->warps) w.arrived = 0;
    for (unsigned t = 0; t < threads; ++t) {
      b->fibers[t].context = {{t, 0, 0}, at, {threads, 1, 1}, grid};
      b->start(t);
    }
    return b;
  }

  Turn run(Block& b) {
    block = &b;
    bool moved = false, waits = false;
    unsigned done = 0;
    for (unsigned i = 0; i < threads; ++i) {
      Fiber& f = b.fibers[backward ? threads - 1 - i : i];
      if (f.state == State::kReady) {
        looked_in_vain = false;
        running = &f;
        current = &f.context;
        spk_switch_stack(&scheduler, f.stack_pointer);
        if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
        (looked_in_vain ? waits : moved) = true;
      }
      if (f.state == State::kDone) ++done;
    }
    if (done == threads) return Turn::kDone;
    if (moved) return Turn::kProgress;
    if (!waits)
      fail_resource("emulated block: ", done, " of ", threads, " threads ended, ", b.in_block,
                    " wait for the block, the others for their warps: a barrier that not all "
                    "reach");
    return Turn::kWaits;
  }
};

Machine& machine() {
  static Machine m;
  return m;
}

// The blocks of a launch: one after the other, as long as none waits for another. The first one
// that does is joined by the next, until all stay together; then one of them, not always the same,
// runs only when no other can go on, because what a block gets wrong is what it takes for done.
class Launch {
 public:
  Launch(Machine& m, const Dim& grid) : m_(m), grid_(grid) {}

  void run() {
    while (begun_ < blocks() || !there_.empty()) {
      if (there_.empty()) begin();
      bool moved = false;
      if (there_.size() > 1 && left_-- == 0) {
        late_ = random_() % there_.size();
        left_ = random_() % 300;
      }
      for (size_t i = 0; i < there_.size(); ++i)
        if (i != late_ || there_.size() == 1) moved |= run(i);
      if (!moved && late_ < there_.size()) moved = run(late_);
      std::erase(there_, nullptr);
      if (moved) continue;
      if (begun_ == blocks())
        fail_resource("emulated launch: ", there_.size(), " of ", blocks(),
                      " blocks wait for what none of them does");
      begin();
    }
  }

 private:
  uint64_t blocks() const { return uint64_t{grid_.x} * grid_.y * grid_.z; }
  void begin() {
    const uint64_t b = m_.backward ? blocks() - 1 - begun_ : begun_;
    ++begun_;
    const Dim at{static_cast<unsigned>(b % grid_.x), static_cast<unsigned>(b / grid_.x % grid_.y),
                 static_cast<unsigned>(b / grid_.x / grid_.y)};
    there_.push_back(m_.begin(at, grid_, there_.empty()));
  }
  // Until it waits or ends; whether it did anything.
  bool run(size_t i) {
    bool moved = false;
    while (there_[i]) {
      const Turn turn = m_.run(*there_[i]);
      if (turn == Turn::kWaits) break;
      moved = true;
      if (turn == Turn::kDone) m_.idle.push_back(std::move(there_[i]));
    }
    return moved;
  }

  Machine& m_;
  Dim grid_;
  uint64_t begun_ = 0;
  std::vector<std::unique_ptr<Block>> there_;
  std::minstd_rand random_{1};
  size_t late_ = 0, left_ = 0;
};

}  // namespace

extern "C" void spk_fiber_main() {
  Machine& m = machine();
  try {
    (*m.body)();
  } catch (...) {
    m.failure = std::current_exception();
  }
  m.running->state = State::kDone;
  m.yield();
}

void sync_block() {
  Machine& m = machine();
  Block& b = *m.block;
  if (++b.in_block == m.threads) {
    b.in_block = 0;
    for (unsigned t = 0; t < m.threads; ++t)
      if (b.fibers[t].state == State::kInBlock) b.fibers[t].state = State::kReady;
    return;
  }
  m.running->state = State::kInBlock;
  m.yield();
}

void sync_team(int team, int threads) {
  Machine& m = machine();
  Block& b = *m.block;
  if (team < 0 || team >= kTeams) fail_resource("emulated block: team ", team, " of ", kTeams);
  if (++b.in_team[team] == static_cast<unsigned>(threads)) {
    b.in_team[team] = 0;
    for (unsigned t = 0; t < m.threads; ++t)
      if (b.fibers[t].state == State::kInTeam && b.fibers[t].team == team)
        b.fibers[t].state = State::kReady;
    return;
  }
  m.running->team = team;
  m.running->state = State::kInTeam;
  m.yield();
}

const uint64_t* exchange(uint64_t value) {
  Machine& m = machine();
  Block& b = *m.block;
  const unsigned thread = current->thread.x, first = thread / kWarpLanes * kWarpLanes;
  Warp& w = b.warps[thread / kWarpLanes];
  const unsigned round = w.round & 1u;
  w.values[round][thread - first] = value;
  if (++w.arrived == kWarpLanes) {
    w.arrived = 0;
    ++w.round;
    for (unsigned t = first; t < first + kWarpLanes; ++t)
      if (b.fibers[t].state == State::kInWarp) b.fibers[t].state = State::kReady;
  } else {
    m.running->state = State::kInWarp;
    m.yield();
  }
  return w.values[round];
}

void* shared_memory(const void* declaration, size_t bytes) {
  Machine& m = machine();
  const auto [at, fresh] = m.shared.try_emplace(declaration, m.shared_used);
  if (fresh) {
    m.shared_used += (bytes + 15) / 16 * 16;
    if (m.shared_used > kArena)
      fail_resource("emulated block: expected at most ", kArena, " bytes of shared memory, found ",
                    m.shared_used);
  }
  return m.block->arena + at->second;
}

unsigned char* dynamic_shared_memory() { return machine().block->dynamic; }

void require(bool good, const char* otherwise) {
  if (!good) fail_resource("emulated block: ", otherwise);
}
void look_again() {
  machine().looked_in_vain = true;
  machine().yield();
}

void check_copy(const void* to, const void* from, int bytes) {
  const Machine& m = machine();
  const auto* const first = static_cast<const unsigned char*>(to);
  const unsigned char* const dynamic = m.block->dynamic;
  const bool aligned = reinterpret_cast<uintptr_t>(to) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(from) % 16 == 0 && bytes % 16 == 0 && bytes > 0;
  const bool inside = first >= dynamic && first + bytes <= dynamic + m.dynamic_used;
  if (!aligned || !inside)
    fail_resource("emulated bulk copy of ", bytes,
                  " bytes: ", aligned ? "not into the block's memory" : "not aligned to 16 bytes");
}

void run_grid(const Dim& grid, unsigned threads, bool backward, const std::function<void()>& body) {
  Machine& m = machine();
  SPK_CHECK(grid.shared <= kDynamic);
  SPK_CHECK(threads % kWarpLanes == 0 && threads <= kMaxThreads);
  m.dynamic_used = grid.shared;
  m.threads = threads;
  m.backward = backward;
  m.body = &body;
  m.shared.clear();
  m.shared_used = 0;
  Launch(m, grid).run();
}

}  // namespace spk::emu
