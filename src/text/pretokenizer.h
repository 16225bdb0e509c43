// The normaliser and the pre-tokenizer sections of tokenizer.json: text in, words (the units of
// BPE) out.
#pragma once

#include "text/split_regex.h"
#include "text/unicode.h"

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace spk {

// What a Split or Digits section does with the matches and with what lies between them.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// One section of the file, as read; a Sequence is flattened.
struct PreStage {
  enum class Kind { kSplit, kDigits, kByteLevel };
  Kind kind = Kind::kSplit;
  std::string pattern;  // kSplit
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
  bool add_prefix_space = false;  // kByteLevel, as is use_regex
  bool use_regex = false;
};

// Receives the words. A word's bytes live as long as the PreScratch and the text.
class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void word(std::string_view bytes) = 0;
};

// Working memory of one call; of one thread.
struct PreScratch {
  std::vector<RegexScratch> regex;       // one per stage that has a regex
  std::vector<std::vector<Span>> spans;  // one per stage
  std::deque<std::string> kept;          // texts made on the way (prefix space)
};

// Immutable and thread-safe.
class PreTokenizer {
 public:
  // `where` names the file in errors. The last stage must be the only ByteLevel.
  PreTokenizer(std::vector<PreStage> stages, const std::string& where);

  PreScratch scratch() const;
  void split(std::string_view text, PreScratch& scratch, WordSink& sink) const;

 private:
  void run(size_t stage, std::string_view piece, PreScratch& scratch, WordSink& sink) const;
  void byte_level(const PreStage& stage, size_t index, std::string_view piece, PreScratch& scratch,
                  WordSink& sink) const;

  std::vector<PreStage> stages_;
  std::vector<SplitRegex> regexes_;
  std::vector<size_t> regex_of_;  // per stage; regexes_.size() where it has none
  CodePointMap digits_;
};

// Canonical composition (NFC) by the reference's tables, in time linear in the text but for sorting
// its longest run of combining marks.
std::string to_nfc(std::string_view text);

}  // namespace spk
