// The public boundary of the engine: open a model, generate text, ask for logits. Tensors do not
// appear in it.
//
// One Engine owns back end, model, caches and the one live session. Not thread-safe: one thread
// owns it (the server will put a queue in front). Errors: Error of the kind that the command line
// maps to its exit status.
#pragma once

#include "backend/backend.h"
#include "backend/sampler.h"
#include "engine/proof.h"
#include "engine/require.h"
#include "engine/speculate.h"
#include "formats/checkpoint.h"
#include "model/model.h"
#include "text/tokenizer.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spk {

// One part of a start that is over.
struct LoadPhase {
  std::string_view name;  // tensors, weights, state, first steps
  double seconds = 0;
  int64_t bytes = 0;         // 0: not a matter of bytes
  std::string text() const;  // "weights: 67055.1 MiB in 3.20 s, 21.97 GB/s"
};

struct EngineOptions {
  std::string backend = "auto";  // auto, reference, cpu, cuda
  PrecisionMode precision = PrecisionMode::kExact;
  BackendOptions device;
  int64_t context = 0;       // 0: the config's, cut to what fits
  std::string rope_scaling;  // "", none, yarn:FACTOR
  // Prefill rows per step, cut at multiples of 64 in absolute positions; 0: default_chunk().
  int64_t chunk = 0;
  int draft = 0;         // drafts per cycle: 0 off, 1..7, kAutoDepth
  bool choices = false;  // room for a second recurrent state (GenerateRequest::shares_prompt)
  HeadFormat head = HeadFormat::kStored;
  std::vector<int32_t> draft_head;   // ids of the draft head's rows; empty: the target's head
  bool prove = true;                 // known-answer tests at start (proof.h)
  std::vector<Requirement> require;  // what a probe step must show (require.h)
  LoadProgress* progress = nullptr;  // told how loading goes; outlives the construction
  std::function<void(const LoadPhase&)> on_phase;  // called while constructing; null: nobody asks
  double slice_seconds =
      0;  // above 0: the chunk is cut at start so that a prefill step takes at most about this long
  Simulation simulation;
  // Wraps the back end before anything is loaded: a trace (backend/trace.h). Null: nothing.
  std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> decorate;
};

// What will be allocated, decided before the first allocation.
struct MemoryPlan {
  int64_t weights = 0;
  int64_t caches = 0;   // latents for `context` tokens, recurrent state, conv tails
  int64_t scratch = 0;  // activations
  int64_t working = 0;  // what the back end keeps besides: scales as floats, rows of the draft
                        // layer, work of the threads
  int64_t context = 0;  // tokens that fit
  int64_t limit = 0;    // 0: none asked for
  int64_t total() const { return weights + caches + scratch + working; }
  std::string text() const;
};

struct Timings {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // taken from the live session
  int64_t output_tokens = 0;
  int64_t read_tokens = 0;  // the others; fewer when the prompt was interrupted
  double prefill_seconds = 0;
  double decode_seconds = 0;  // of all tokens after the first
  uint64_t weight_bytes = 0;  // read while decoding
  uint64_t state_bytes = 0;
  DraftCounters drafts;
  double bytes_per_token() const;
  double prefill_tok_s() const;
  double decode_tok_s() const;
  double gigabytes_per_second() const;
};

struct GenerateRequest {
  std::vector<int32_t> prompt;
  SamplerParams sampling;
  int64_t max_tokens = 0;  // 0: up to the context
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool seeded =
      true;  // the caller chose the seed: the text must not depend on drafts (speculate.h)
  std::optional<int> draft;  // drafts per cycle of this answer instead of the engine's, at most 7
  int top_logprobs = -1;     // -1: none
  const std::atomic<bool>* cancel =
      nullptr;  // looked at between prefill chunks and tokens; any thread may set it
  // Looked at inside a step too; the session is lost then, and the next prompt is read from its
  // start.
  const std::atomic<bool>* abort = nullptr;
  // One of several requests in a row with this prompt: the first keeps the state behind the prompt,
  // the others go on from there. Without EngineOptions::choices each reads it anew.
  bool shares_prompt = false;
  // Take the live session's ids for a prompt whose TEXT extends the session's (engine/align.h).
  bool match_text = false;
  // Asked before each token: an id that must stand there instead of the sampled one, or -1. Asked
  // again for the same place after drafts were taken back, so it must not count calls. Null: never.
  std::function<int32_t()> force;
  // The prompt has been read: prompt_tokens, cached_tokens and prefill_seconds are known. Null: not
  // wanted.
  std::function<void(const Timings&)> on_prompt;
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled };
std::string_view finish_reason_name(FinishReason reason);

// One generated token; `text` is whole UTF-8 characters (held back while incomplete or while a stop
// string may begin).
struct TokenEvent {
  int32_t id = -1;
  std::string_view text;
  bool is_end = false;  // the end token, which is not part of the answer
  bool is_markup =
      false;  // an added token: its text is the markup itself (</think>); the end token has none
  bool more = false;  // another token of the same pass follows at once
  TokenLogprob logprob;
  std::span<const TokenLogprob> top;
};

struct GenerateResult {
  std::vector<int32_t> tokens;  // without the end token
  std::string text;
  FinishReason reason = FinishReason::kStop;
  Timings timings;
};

class Engine {
 public:
  // Takes the source; opens back end, binds, plans memory, uploads.
  Engine(std::unique_ptr<TensorSource> source, const ModelConfig& config,
         std::optional<Tokenizer> tokenizer, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelConfig& config() const;
  const MemoryPlan& memory() const;
  const ModelSizes& sizes() const;  // bytes by component, as stored and per decoded token
  const std::vector<std::string>& notes() const;  // warnings and remarks to show at start
  const Tokenizer* tokenizer() const;             // null: verbs that take ids only
  Backend& backend();
  // What really runs: back end, expert kernels by shape, head, drafts, states, fused blocks, bytes
  // per token. One "name: value" a line.
  std::string plan_text() const;
  const std::vector<Proof>& proofs() const;  // all passed; empty for the reference back end

  // Generates until a stop rule, calling `on_token` for each token; false from it cancels (finish
  // kCancelled). A prompt that extends the live session's tokens reads only the new ones.
  // Error(kInput) when prompt + 1 > context, with both numbers.
  GenerateResult generate(const GenerateRequest& request,
                          const std::function<bool(const TokenEvent&)>& on_token);

  // Teacher forcing. Calls `row(i, logits)` for each position in order; `chunk` 0: the engine's.
  // Routes: see cli.md.
  struct LogitsRequest {
    std::span<const int32_t> tokens;
    bool mtp = false;   // rows of the MTP layer instead: row i from (token i+1, hidden i)
    int64_t chunk = 0;  // rows per step; 1: token by token
    std::span<const int32_t> routes_in;  // [n, moe layers + 1, top_k] or empty
    std::vector<int32_t>* routes_out = nullptr;
  };
  void logits(const LogitsRequest& request,
              const std::function<void(int64_t, std::span<const float>)>& row);

 private:
  struct Impl;
  class Answer;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spk
