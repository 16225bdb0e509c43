// tokenizer.json as a hostile file: it loads or gives an Error, and what loads encodes a small text
// and gives it back.
#include "base/error.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const spk::Tokenizer tokenizer = spk::Tokenizer::from_json(json, "tokenizer.json");
    const std::string text = "it's  12\r\n\xe4\xbd\xa0 e\xcc\x81<think> \xf0\x9f\x98\x80\xff" +
                             std::string(json.substr(0, 64));
    for (const spk::Special special : {spk::Special::kPlain, spk::Special::kForm}) {
      spk::Detokenizer detokenizer(tokenizer);
      for (const int32_t id : tokenizer.encode(text, special)) {
        if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
        detokenizer.push(id);
      }
      detokenizer.finish();
    }
  } catch (const spk::Error&) {
  }
  return 0;
}
