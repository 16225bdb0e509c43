// Cuts a text at the matches of one of the file's regular expressions (rewritten; see
// regex_rewrite.h) through PCRE2.
//
// The only place that knows PCRE2. Matching is just-in-time compiled where the system allows it.
#pragma once

#include "text/unicode.h"

#include <memory>
#include <string>
#include <string_view>

namespace spk {

struct Span {
  size_t begin;
  size_t end;
  bool matched;
};

// Immutable and thread-safe; what matching needs to write is in a RegexScratch.
class SplitRegex {
 public:
  SplitRegex(std::string_view pattern, const std::string& where);
  SplitRegex(SplitRegex&&) noexcept;
  SplitRegex& operator=(SplitRegex&&) noexcept;
  ~SplitRegex();

 private:
  friend class SpanReader;
  friend class RegexScratch;
  struct Code;
  CodePointMap classes_;
  std::unique_ptr<Code> code_;
};

// Working memory of one text at a time; reused from text to text, of one thread.
class RegexScratch {
 public:
  explicit RegexScratch(const SplitRegex& regex);
  RegexScratch(RegexScratch&&) noexcept;
  RegexScratch& operator=(RegexScratch&&) noexcept;
  ~RegexScratch();

 private:
  friend class SpanReader;
  struct State;
  std::unique_ptr<State> state_;
};

// Spans that cover the text, matches and the gaps between them, in order. Empty matches cut, and
// are not reported where they would follow the previous match directly. The text must be UTF-8 and
// outlive the reader.
class SpanReader {
 public:
  SpanReader(const SplitRegex& regex, std::string_view text, RegexScratch& scratch);
  bool next(Span& span);

 private:
  bool find();
  size_t advance(size_t byte, size_t characters) const;

  const SplitRegex& regex_;
  std::string_view text_;
  RegexScratch& scratch_;
  bool ascii_;              // one byte is one character: offsets need no walk
  size_t search_ = 0;       // character at which the next search starts
  size_t character_ = 0;    // of byte_
  size_t byte_ = 0;         // end of what was reported
  bool any_match_ = false;  // last_match_end_ is set
  size_t last_match_end_ = 0;
  bool pending_ = false;  // a match was found behind a gap
  Span match_{};
};

}  // namespace spk
