// The stages call each other per piece, so no list of all pieces of a text is ever made.
#include "text/pretokenizer.h"

#include "base/error.h"
#include "text/utf8.h"

#include <algorithm>
#include <utility>

namespace spk {
namespace {

// What ByteLevel cuts by when use_regex is on: the words of GPT-2.
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Joins or drops spans as the behaviour says; the rules are those of the Hugging Face package, odd
// corners included.
void apply_behavior(SplitBehavior behavior, std::vector<Span>& spans) {
  std::vector<Span> out;
  bool previous = false;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(spans, [](const Span& s) { return s.matched; });
      return;
    case SplitBehavior::kContiguous:
      for (const Span& s : spans) {
        if (s.matched == previous && !out.empty()) {
          out.back().end = s.end;
        } else {
          out.push_back(s);
        }
        previous = s.matched;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Span& s : spans) {
        if (s.matched && !previous && !out.empty()) {
          out.back().end = s.end;
        } else {
          out.push_back(s);
        }
        previous = s.matched;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (size_t i = spans.size(); i-- > 0;) {
        const Span& s = spans[i];
        if (s.matched && !previous && !out.empty()) {
          out.back().begin = s.begin;
        } else {
          out.push_back(s);
        }
        previous = s.matched;
      }
      std::reverse(out.begin(), out.end());
      break;
  }
  spans = std::move(out);
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<PreStage> stages, const std::string& where)
    : stages_(std::move(stages)) {
  for (size_t i = 0; i < stages_.size(); ++i) {
    const PreStage& stage = stages_[i];
    const bool last = i + 1 == stages_.size();
    if ((stage.kind == PreStage::Kind::kByteLevel) != last) {
      fail_input(
          where,
          ": pre_tokenizer: expected ByteLevel as its last section and nowhere else, found it "
          "elsewhere");
    }
    regex_of_.push_back(regexes_.size());
    if (stage.kind == PreStage::Kind::kDigits) digits_ = CodePointMap::of_set(unicode_digits());
    if (stage.kind == PreStage::Kind::kSplit) {
      regexes_.emplace_back(stage.pattern, where + ": pre_tokenizer.Split");
    } else if (stage.kind == PreStage::Kind::kByteLevel && stage.use_regex) {
      regexes_.emplace_back(kGpt2Words, where + ": pre_tokenizer.ByteLevel");
    }
  }
  if (stages_.empty()) {
    fail_input(where, ": pre_tokenizer: found none, expected one that ends in ByteLevel");
  }
}

PreScratch PreTokenizer::scratch() const {
  PreScratch scratch;
  for (const SplitRegex& regex : regexes_) scratch.regex.emplace_back(regex);
  scratch.spans.resize(stages_.size());
  return scratch;
}

void PreTokenizer::split(std::string_view text, PreScratch& scratch, WordSink& sink) const {
  if (!text.empty()) run(0, text, scratch, sink);
}

void PreTokenizer::run(size_t index, std::string_view piece, PreScratch& scratch,
                       WordSink& sink) const {
  const PreStage& stage = stages_[index];
  if (stage.kind == PreStage::Kind::kByteLevel) {
    return byte_level(stage, index, piece, scratch, sink);
  }
  const auto pass_on = [&](const Span& span) {
    if (span.begin < span.end) {
      run(index + 1, piece.substr(span.begin, span.end - span.begin), scratch, sink);
    }
  };
  if (stage.kind == PreStage::Kind::kDigits) {
    std::vector<Span>& spans = scratch.spans[index];
    spans.clear();
    for (size_t i = 0; i < piece.size();) {
      const Utf8Char c = read_utf8(piece.substr(i));
      const bool digit = digits_[c.code] != 0;
      const bool joins = !spans.empty() && spans.back().matched == digit &&
                         (!digit || stage.behavior == SplitBehavior::kContiguous);
      if (joins) {
        spans.back().end += c.length;
      } else {
        spans.push_back({i, i + c.length, digit});
      }
      i += c.length;
    }
    for (const Span& span : spans) pass_on(span);
    return;
  }
  const size_t regex = regex_of_[index];
  SpanReader reader(regexes_[regex], piece, scratch.regex[regex]);
  Span span;
  if (stage.behavior == SplitBehavior::kIsolated) {
    while (reader.next(span)) pass_on(span);
    return;
  }
  std::vector<Span>& spans = scratch.spans[index];
  spans.clear();
  while (reader.next(span)) {
    span.matched = span.matched != stage.invert;
    spans.push_back(span);
  }
  apply_behavior(stage.behavior, spans);
  for (const Span& s : spans) pass_on(s);
}

void PreTokenizer::byte_level(const PreStage& stage, size_t index, std::string_view piece,
                              PreScratch& scratch, WordSink& sink) const {
  if (stage.add_prefix_space && piece[0] != ' ') {
    scratch.kept.push_back(cat(' ', piece));
    piece = scratch.kept.back();
  }
  if (!stage.use_regex) return sink.word(piece);
  const size_t regex = regex_of_[index];
  SpanReader reader(regexes_[regex], piece, scratch.regex[regex]);
  Span span;
  while (reader.next(span)) sink.word(piece.substr(span.begin, span.end - span.begin));
}

}  // namespace spk
