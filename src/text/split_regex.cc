// Compile once, then match over class bytes: one byte a character.
#include "text/split_regex.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/error.h"
#include "text/regex_rewrite.h"
#include "text/utf8.h"

#include <pcre2.h>

namespace spk {
namespace {

// Steps of the matcher for one match, beyond which a pattern is taken for a hostile one: real
// patterns backtrack a few times per character, so the bound grows with the text.
constexpr uint64_t kMatchSteps = 1000000;
constexpr uint64_t kMatchStepsPerCharacter = 16;
// The just-in-time stack: 32 KiB are on the machine stack anyway, more is needed only by nested
// repeats.
constexpr size_t kJitStackStart = size_t{64} << 10;
constexpr size_t kJitStackMost = size_t{64} << 20;
constexpr uint32_t kHeapLimitKib = 256u << 10;

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct SplitRegex::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
  pcre2_code* code;
  bool jit = false;
};

SplitRegex::SplitRegex(std::string_view pattern, const std::string& where) {
  RewrittenRegex rewritten = rewrite_regex(pattern, where);
  classes_ = std::move(rewritten.classes);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.pattern.data()),
                                   rewritten.pattern.size(), PCRE2_NEVER_UTF | PCRE2_NEVER_UCP,
                                   &error, &offset, nullptr);
  if (code == nullptr) {
    fail_input(where, ": the pattern '", pattern, "' does not compile: ", pcre2_message(error));
  }
  code_ = std::make_unique<Code>(code);
  code_->jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;  // else interpreted: slower, equal
}
SplitRegex::SplitRegex(SplitRegex&&) noexcept = default;
SplitRegex& SplitRegex::operator=(SplitRegex&&) noexcept = default;
SplitRegex::~SplitRegex() = default;

struct RegexScratch::State {
  explicit State(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)) {
    SPK_CHECK(data != nullptr && context != nullptr);
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack = nullptr;
  std::vector<uint8_t> classes;  // [characters of the text]
};

RegexScratch::RegexScratch(const SplitRegex& regex)
    : state_(std::make_unique<State>(regex.code_->code)) {}
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;
RegexScratch& RegexScratch::operator=(RegexScratch&&) noexcept = default;
RegexScratch::~RegexScratch() = default;

SpanReader::SpanReader(const SplitRegex& regex, std::string_view text, RegexScratch& scratch)
    : regex_(regex), text_(text), scratch_(scratch) {
  std::vector<uint8_t>& classes = scratch_.state_->classes;
  classes.resize(text.size());
  size_t count = 0;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      classes[count++] = regex.classes_[byte];
      ++i;
    } else {
      const Utf8Char c = read_utf8(text.substr(i));
      classes[count++] = regex.classes_[c.code];
      i += c.length;
    }
  }
  classes.resize(count);
  ascii_ = count == text.size();
  const uint64_t steps = kMatchSteps + kMatchStepsPerCharacter * count;
  pcre2_set_match_limit(scratch_.state_->context,
                        static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
}

size_t SpanReader::advance(size_t byte, size_t characters) const {
  if (ascii_) return byte + characters;
  while (characters-- > 0) byte += utf8_length(text_[byte]);
  return byte;
}

// The next match from search_ on, into match_.
bool SpanReader::find() {
  RegexScratch::State& state = *scratch_.state_;
  const size_t count = state.classes.size();
  while (search_ <= count) {
    const auto run = [&] {
      return pcre2_match(regex_.code_->code, state.classes.data(), count, search_,
                         PCRE2_NO_UTF_CHECK, state.data, state.context);
    };
    int rc = run();
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && state.stack == nullptr) {
      state.stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr);
      pcre2_jit_stack_assign(state.context, nullptr, state.stack);
      rc = run();
    }
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) fail_input("the tokenizer's pattern fails on this text: ", pcre2_message(rc));
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(state.data);
    const size_t begin = found[0];
    const size_t end = found[1];
    if (begin == end && any_match_ && end == last_match_end_) {
      ++search_;
      continue;
    }
    search_ = end;
    any_match_ = true;
    last_match_end_ = end;
    const size_t begin_byte = advance(byte_, begin - character_);
    match_ = {begin_byte, advance(begin_byte, end - begin), true};
    character_ = end;
    return true;
  }
  return false;
}

bool SpanReader::next(Span& span) {
  if (pending_) {
    pending_ = false;
    span = match_;
    byte_ = span.end;
    return true;
  }
  if (text_.empty()) return false;
  if (!find()) {
    if (byte_ == text_.size()) return false;
    span = {byte_, text_.size(), false};
    byte_ = text_.size();
    search_ = scratch_.state_->classes.size() + 1;
    return true;
  }
  if (match_.begin > byte_) {
    span = {byte_, match_.begin, false};
    byte_ = match_.end;
    pending_ = true;
    return true;
  }
  span = match_;
  byte_ = span.end;
  return true;
}

}  // namespace spk
