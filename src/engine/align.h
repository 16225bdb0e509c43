// A prompt rendered from a chat, put into the token ids that the live session already has.
//
// Sampled tokens need not be the ones that the tokenizer would choose for the same text, so a chat
// that comes back as text may differ from the session in ids and not in a single byte. Reading it
// again would cost the whole history.
#pragma once

#include "text/tokenizer.h"

#include <cstdint>
#include <span>
#include <vector>

namespace spk {

// `live`, followed by the rest of `prompt`, when the text of `live` is a prefix of the prompt's
// text, the prompt has a token border there, and control tokens stand at the same places: text that
// only looks like a control token never matches one. Else `prompt` unchanged. Linear.
std::vector<int32_t> align_prompt(std::span<const int32_t> live, std::span<const int32_t> prompt,
                                  const Tokenizer& tokenizer);

}  // namespace spk
