// What a bench runs: fixed token streams of a seed, or the prompts of a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spk {

// `n` ids, a function of the seed and nothing else. Two seeds differ from the first token on, so
// that no repetition finds its prompt in a cache.
std::vector<int32_t> token_stream(int64_t n, uint64_t seed, int64_t vocab);

struct TextPrompt {
  std::string kind;  // what sort of text; "" where the file does not say
  std::string text;
  bool thinking = false;  // whether the model is to think about it
};
// JSONL: each line a JSON string, or an object with "prompt" (or "question") and perhaps "kind" and
// "thinking".
// Error(kInput) names file, line, expected and found.
std::vector<TextPrompt> read_prompts(const std::string& path);
std::vector<TextPrompt> parse_prompts(std::string_view bytes, const std::string& path);

// The study's own kinds of text, for models without a file: repetitive, word problems, chat, prose.
std::vector<TextPrompt> study_prompts();

}  // namespace spk
