// Building the tables from the file, and the way of a text through them.
#include "text/tokenizer.h"

#include "base/error.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_file.h"
#include "text/utf8.h"
#include "text/word_cache.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

namespace spk {
namespace {

// Ids are indices of tables, so a file of few tokens must not name a huge one. Real files leave
// gaps of some hundreds.
constexpr int64_t kMaxIdGap = 65536;
// Longer words are rare, and as keys they would make every look-up slow.
constexpr size_t kMaxCachedWord = 64;

// Bytes that no UTF-8 text contains; a vocabulary may lack them.
bool never_in_utf8(size_t byte) { return byte == 0xc0 || byte == 0xc1 || byte >= 0xf5; }

}  // namespace

struct Tokenizer::Impl {
  Impl(TokenizerFile file, const std::string& name);

  void read_vocab(const TokenizerFile& file, const std::string& name);
  void read_merges(const TokenizerFile& file, const std::string& name);
  void read_added(const TokenizerFile& file, const std::string& name);
  std::optional<int32_t> with_bytes(std::string_view token) const;
  // The id of a token as the file spells it.
  std::optional<int32_t> spelled(const std::string& token) const;

  void encode_plain(std::string_view text, std::vector<int32_t>& out) const;
  void encode_words(std::string_view text, std::vector<int32_t>& out) const;
  // Appends the text to `run`; at each added token first encodes the run.
  void encode_form(std::string_view text, std::string& run, std::vector<int32_t>& out) const;
  void flush(std::string& run, std::vector<int32_t>& out) const;

  std::vector<std::string> bytes;  // per id; empty without token
  std::vector<uint8_t> kind;       // per id: bit 0 known, bit 1 added, bit 2 special
  std::unordered_map<std::string_view, int32_t> by_bytes;  // model tokens, views into `bytes`
  std::unordered_map<std::string, int32_t>
      odd;  // model tokens outside the byte alphabet, as spelled
  std::unordered_map<std::string, int32_t> added;  // by content
  bool ignore_merges;
  bool nfc;
  Bpe bpe;
  PreTokenizer pre;
  AddedTokenSet raw_tokens;         // looked for in the text as it is
  AddedTokenSet normalized_tokens;  // looked for after normalising, between the others
};

namespace {
constexpr uint8_t kKnown = 1;
constexpr uint8_t kAdded = 2;
constexpr uint8_t kSpecial = 4;
}  // namespace

Tokenizer::Impl::Impl(TokenizerFile file, const std::string& name)
    : ignore_merges(file.ignore_merges), nfc(file.nfc), pre(std::move(file.stages), name) {
  int64_t largest = -1;
  for (const auto& [token, id] : file.vocab) largest = std::max(largest, id);
  for (const AddedToken& token : file.added) largest = std::max<int64_t>(largest, token.id);
  const auto entries = static_cast<int64_t>(file.vocab.size() + file.added.size());
  if (largest >= 2 * entries + kMaxIdGap) {
    fail_input(name, ": model.vocab: expected ids below ", 2 * entries + kMaxIdGap, " for ",
               entries, " tokens, found ", largest);
  }
  bytes.resize(static_cast<size_t>(largest + 1));
  kind.resize(bytes.size());
  read_vocab(file, name);
  read_merges(file, name);
  read_added(file, name);
}

void Tokenizer::Impl::read_vocab(const TokenizerFile& file, const std::string& name) {
  by_bytes.reserve(file.vocab.size());
  std::string decoded;
  for (const auto& [token, id] : file.vocab) {
    if (id < 0)
      fail_input(name, ": model.vocab.", token, ": expected an id of 0 or more, found ", id);
    const auto i = static_cast<size_t>(id);
    if (kind[i] & kKnown) {
      fail_input(name, ": model.vocab.", token, ": id ", id, " expected once, found again");
    }
    kind[i] |= kKnown;
    const bool odd_token = token.empty() || !from_byte_alphabet(token, decoded);
    bytes[i] = odd_token ? token : decoded;
    const bool fresh = odd_token ? odd.emplace(token, static_cast<int32_t>(id)).second
                                 : by_bytes.emplace(bytes[i], static_cast<int32_t>(id)).second;
    if (!fresh) fail_input(name, ": model.vocab.", token, ": token expected once, found again");
  }
}

std::optional<int32_t> Tokenizer::Impl::with_bytes(std::string_view token) const {
  const auto at = by_bytes.find(token);
  if (at == by_bytes.end()) return std::nullopt;
  return at->second;
}

std::optional<int32_t> Tokenizer::Impl::spelled(const std::string& token) const {
  std::string decoded;
  if (from_byte_alphabet(token, decoded)) return with_bytes(decoded);
  const auto at = odd.find(token);
  if (at != odd.end()) return at->second;
  return std::nullopt;
}

void Tokenizer::Impl::read_merges(const TokenizerFile& file, const std::string& name) {
  std::array<int32_t, 256> byte_ids{};
  for (size_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    const auto at = by_bytes.find(std::string_view(&byte, 1));
    if (at == by_bytes.end() && !never_in_utf8(b)) {
      fail_input(name, ": model.vocab: expected a token for each byte, found none for byte ", b);
    }
    byte_ids[b] = at == by_bytes.end() ? -1 : at->second;
  }
  bpe = Bpe(byte_ids, file.merges.size());
  uint32_t rank = 0;
  std::string l;
  std::string r;
  for (const auto& [left, right] : file.merges) {
    const auto known = [&](std::optional<int32_t> id, const std::string& token) {
      if (!id) {
        fail_input(name, ": model.merges[", rank, "]: expected tokens of model.vocab, found '",
                   token, "'");
      }
      return *id;
    };
    if (from_byte_alphabet(left, l) && from_byte_alphabet(right, r)) {
      const int32_t left_id = known(with_bytes(l), left);
      const int32_t right_id = known(with_bytes(r), right);
      l += r;
      const std::optional<int32_t> joined = with_bytes(l);
      bpe.add_merge(left_id, right_id, rank, joined ? *joined : known(joined, left + right));
    } else {  // tokens that no text leads to, but they must be there
      known(spelled(left), left);
      known(spelled(right), right);
      known(spelled(left + right), left + right);
    }
    ++rank;
  }
}

void Tokenizer::Impl::read_added(const TokenizerFile& file, const std::string& name) {
  for (const AddedToken& token : file.added) {
    const auto i = static_cast<size_t>(token.id);
    const std::optional<int32_t> in_model = spelled(token.content);
    const auto wrong = [&](const std::string& expected) {
      fail_input(name, ": added_tokens '", token.content, "': expected ", expected, ", found id ",
                 token.id);
    };
    if (in_model && *in_model != token.id) wrong(cat("its id of model.vocab, ", *in_model));
    if (!in_model && (kind[i] & kKnown)) wrong("an id of its own");
    if (!added.emplace(token.content, token.id).second) wrong("each token once");
    kind[i] = static_cast<uint8_t>(kKnown | kAdded | (token.special ? kSpecial : 0));
    // A token that is in the model's vocabulary too keeps its bytes there: by_bytes refers to them.
    if (!in_model) bytes[i] = token.content;
    if (token.normalized) {
      normalized_tokens.add(nfc ? to_nfc(token.content) : token.content, token);
    } else {
      raw_tokens.add(token.content, token);
    }
  }
}

namespace {

// Encodes the words as they come, through the cache.
class Encoder : public WordSink {
 public:
  Encoder(const Bpe& bpe, const std::unordered_map<std::string_view, int32_t>* whole_words,
          size_t text_bytes, std::vector<int32_t>& out)
      : bpe_(bpe), whole_words_(whole_words), cache_(text_bytes), out_(out) {}

  void word(std::string_view bytes) override {
    if (bytes.size() > kMaxCachedWord) return encode(bytes);
    WordCache::Slot& slot = cache_.slot(bytes);
    const size_t first = out_.size();
    if (slot.holds(bytes)) {
      out_.resize(first + slot.count);
      std::copy_n(out_.begin() + static_cast<std::ptrdiff_t>(slot.first), slot.count,
                  out_.begin() + static_cast<std::ptrdiff_t>(first));
      return;
    }
    encode(bytes);
    slot = {bytes.data(), static_cast<uint32_t>(bytes.size()),
            static_cast<uint32_t>(out_.size() - first), first};
  }

 private:
  void encode(std::string_view bytes) {
    if (whole_words_ != nullptr) {
      const auto at = whole_words_->find(bytes);
      if (at != whole_words_->end()) return out_.push_back(at->second);
    }
    bpe_.encode(bytes, out_, scratch_);
  }

  const Bpe& bpe_;
  const std::unordered_map<std::string_view, int32_t>* whole_words_;
  WordCache cache_;
  std::vector<int32_t>& out_;
  BpeScratch scratch_;
};

}  // namespace

void Tokenizer::Impl::encode_words(std::string_view text, std::vector<int32_t>& out) const {
  PreScratch scratch = pre.scratch();
  Encoder encoder(bpe, ignore_merges ? &by_bytes : nullptr, text.size(), out);
  pre.split(text, scratch, encoder);
}

void Tokenizer::Impl::encode_plain(std::string_view text, std::vector<int32_t>& out) const {
  if (text.empty()) return;
  if (!nfc) return encode_words(text, out);
  const std::string normalized = to_nfc(text);
  encode_words(normalized, out);
}

void Tokenizer::Impl::flush(std::string& run, std::vector<int32_t>& out) const {
  encode_plain(run, out);
  run.clear();
}

void Tokenizer::Impl::encode_form(std::string_view text, std::string& run,
                                  std::vector<int32_t>& out) const {
  const auto each = [&](const AddedTokenSet& set, std::string_view part, const auto& between) {
    size_t from = 0;
    AddedTokenSet::Found found{};
    while (set.find(part, from, found)) {
      between(part.substr(from, found.begin - from));
      flush(run, out);
      out.push_back(found.id);
      from = found.end;
    }
    between(part.substr(from));
  };
  const auto append = [&](std::string_view part) { run += part; };
  each(raw_tokens, text, [&](std::string_view part) {
    if (normalized_tokens.empty()) return append(part);
    const std::string normalized = nfc ? to_nfc(part) : std::string(part);
    each(normalized_tokens, normalized, append);
  });
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  return Tokenizer(std::make_unique<const Impl>(read_tokenizer_file(json, name), name));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, Special special) const {
  const TextPiece piece{text, special};
  return encode(std::span(&piece, 1));
}

std::vector<int32_t> Tokenizer::encode(std::span<const TextPiece> pieces) const {
  std::vector<int32_t> out;
  std::string run;  // text since the last added token
  for (const TextPiece& piece : pieces) {
    const std::string cleaned = is_utf8(piece.text) ? std::string() : clean_utf8(piece.text);
    const std::string_view text = cleaned.empty() ? piece.text : cleaned;
    if (piece.special == Special::kForm) {
      impl_->encode_form(text, run, out);
    } else {
      run += text;
    }
  }
  impl_->flush(run, out);
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      fail_input("token id: expected 0 to ", vocab_size() - 1, ", found ", id);
    }
    out += impl_->bytes[static_cast<size_t>(id)];
  }
  return out;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return impl_->bytes[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto added = impl_->added.find(std::string(token));
  if (added != impl_->added.end()) return added->second;
  return impl_->with_bytes(token);
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(impl_->bytes.size()); }

bool Tokenizer::is_added(int32_t id) const {
  return id >= 0 && id < vocab_size() && (impl_->kind[static_cast<size_t>(id)] & kAdded) != 0;
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && (impl_->kind[static_cast<size_t>(id)] & kSpecial) != 0;
}

}  // namespace spk
