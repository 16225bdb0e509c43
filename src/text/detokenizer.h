// Token ids to text, one at a time, without ever cutting a character.
#pragma once

#include "text/tokenizer.h"
#include "text/utf8.h"

#include <cstdint>
#include <string>

namespace spk {

// A character may span tokens, and a model may emit bytes that form none. push returns the
// characters that are complete and holds the rest back; bytes that can never become a character are
// U+FFFD at once. All pieces joined are clean_utf8(decode(all ids)). Not thread-safe; the tokenizer
// must outlive it.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::string push(int32_t id) { return stream_.push(tokenizer_.token_bytes(id)); }
  // What is still held back, as U+FFFD; afterwards ready for a new text.
  std::string finish() { return stream_.finish(); }

 private:
  const Tokenizer& tokenizer_;
  Utf8Stream stream_;
};

}  // namespace spk
