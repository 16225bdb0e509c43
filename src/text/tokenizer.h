// Byte-level BPE as a tokenizer.json describes it: text to token ids and back.
//
// Owns the vocabulary and the rule that text is only plain text: added tokens (the model's control
// tokens among them) form only where the caller says so. Does not know any chat markup
// (text/chat.h) and reads no files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spk {

enum class Special {
  kPlain,  // the text of a control token stays text: right for everything that a user wrote
  kForm,   // added tokens form wherever their text stands
};

// A stretch of text with its own rule.
struct TextPiece {
  std::string_view text;
  Special special = Special::kPlain;
};

// Immutable, hence thread-safe; moveable.
class Tokenizer {
 public:
  // `json` is untrusted. Throws Error (kInput) naming `name`, the key, what was expected and what
  // was found.
  static Tokenizer from_json(std::string_view json, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Bytes that are not UTF-8 become U+FFFD first (text/utf8.h says how many).
  std::vector<int32_t> encode(std::string_view text, Special special = Special::kPlain) const;

  // The pieces as ONE text: words may reach over the border of two pieces exactly as if there were
  // none, but an added token forms only inside one piece marked kForm. So a rendered chat gets the
  // ids that the model was trained on.
  std::vector<int32_t> encode(std::span<const TextPiece> pieces) const;

  // Joined bytes of the tokens, not necessarily UTF-8; throws on an id outside 0 .. vocab_size()
  // - 1.
  std::string decode(std::span<const int32_t> ids) const;

  // The bytes of one token; empty for an id without a token (a model may have more rows than
  // tokens).
  std::string_view token_bytes(int32_t id) const;

  // The id of an added token by its text, or else of the token with these bytes.
  std::optional<int32_t> id_of(std::string_view token) const;

  int32_t vocab_size() const;  // largest id + 1
  bool is_added(int32_t id) const;
  bool is_special(int32_t id) const;  // added and marked special in the file

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace spk
