// tokenizer.json as plain data: everything that the file says and we support, checked; the rest
// refused by name.
#pragma once

#include "text/added_tokens.h"
#include "text/pretokenizer.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spk {

// Token texts here are as the file writes them: each byte as one printable character (the GPT-2
// byte alphabet).
struct TokenizerFile {
  std::vector<std::pair<std::string, int64_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // ascending rank
  bool ignore_merges = false;
  bool nfc = false;
  std::vector<PreStage> stages;
  std::vector<AddedToken> added;
};

// Throws Error (kInput) that names the file (`name`), the key, what was expected and what was
// found. Ignored because they have no influence on encoding without special tokens around:
// post_processor, truncation, padding, the decoder's details.
TokenizerFile read_tokenizer_file(std::string_view json, const std::string& name);

// From the byte alphabet to bytes; false when a character is not in it (then such a token cannot
// come out of BPE).
bool from_byte_alphabet(std::string_view text, std::string& bytes);

}  // namespace spk
