// src/text/tokenizer and what is below it, against stored answers of the Hugging Face package
// (tools/golden_text.py), against slower code of our own, and on hostile files.
// tests/text_oracle_test.py runs the package itself.
#include "text/tokenizer.h"

#include "base/error.h"
#include "text/bpe.h"
#include "text/detokenizer.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"
#include "text_files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>

namespace spk {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

json golden(const std::string& name) {
  return json::parse(read_source_file("tests/golden/text/" + name + ".json")).at("cases");
}

const Tokenizer& nano() {
  static const Tokenizer tokenizer =
      Tokenizer::from_json(read_source_file("models/ling-nano/tokenizer.json"), "tokenizer.json");
  return tokenizer;
}

json small_file() { return golden("variants").at("base"); }

// The message of the Error that loading this file must give.
std::string load_error(const std::string& text) {
  try {
    Tokenizer::from_json(text, "tokenizer.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInput);
    return e.what();
  }
  return "no error";
}

class WordList : public WordSink {
 public:
  void word(std::string_view bytes) override { words.emplace_back(bytes); }
  std::vector<std::string> words;
};

std::vector<std::string> split_words(const std::string& pattern, SplitBehavior behavior,
                                     bool invert, const std::string& text) {
  PreStage split;
  split.pattern = pattern;
  split.behavior = behavior;
  split.invert = invert;
  PreStage last;
  last.kind = PreStage::Kind::kByteLevel;
  const PreTokenizer pre({split, last}, "test");
  PreScratch scratch = pre.scratch();
  WordList list;
  pre.split(text, scratch, list);
  return list.words;
}

// ---- UTF-8

TEST(Utf8, ReplacesAsPythonDoes) {
  for (const json& c : golden("utf8")) {
    const auto bytes = c.at("bytes").get<std::vector<uint8_t>>();
    const std::string text(bytes.begin(), bytes.end());
    EXPECT_EQ(clean_utf8(text), c.at("text").get<std::string>()) << c.dump();
  }
}

// Any cut of any bytes gives whole characters that join to the same text.
TEST(Utf8, StreamJoinsToTheWhole) {
  EXPECT_TRUE(rc::check("pieces of a stream join to the clean text",
                        [](const std::vector<uint8_t>& noise, bool real) {
                          std::string text(noise.begin(), noise.end());
                          if (real) text += "\xf0\x9f\x98\x80\xe2\x82\xac\xc3";
                          Utf8Stream stream;
                          std::string joined;
                          size_t at = 0;
                          while (at < text.size()) {
                            const size_t n = *rc::gen::inRange<size_t>(1, 5);
                            const std::string piece =
                                stream.push(std::string_view(text).substr(at, n));
                            RC_ASSERT(is_utf8(piece));
                            joined += piece;
                            at += std::min(n, text.size() - at);
                          }
                          joined += stream.finish();
                          RC_ASSERT(joined == clean_utf8(text));
                          RC_ASSERT(is_utf8(text) == (joined == text));
                        }));
}

// ---- Splitting

TEST(PreTokenizer, SplitsAsTheReference) {
  const std::map<std::string, SplitBehavior> behaviors = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  for (const json& c : golden("split")) {
    const auto words =
        split_words(c.at("pattern"), behaviors.at(c.at("behavior")), c.at("invert"), c.at("text"));
    EXPECT_EQ(words, c.at("pieces").get<std::vector<std::string>>()) << c.dump();
  }
}

TEST(PreTokenizer, RefusesWhatEnginesReadDifferently) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"(\h)", "the escape '\\h'"},
      {R"(\bx)", "the escape '\\b'"},
      {R"(\pL)", "without braces"},
      {R"(\p{Klingon})", "unknown property"},
      {R"([[:alpha:]])", "class inside"},
      {R"([a&&b])", "intersection"},
      {R"([]a])", "escaped"},
      {R"([\d-z])", "starts or ends"},
      {R"([z-a])", "reversed"},
      {R"((?m:.))", "the group '(?m'"},
      {R"((?<n>a))", "the group"},
      {R"((a)\1)", "the escape '\\1'"},
      {R"(a++b**)", "nothing that"},
      {R"(*a)", "nothing that"},
      {R"((?i:ss))", "ligature"},
      {R"((?i:\p{L}))", "property under"},
      {"(?i:\u00e9)", "outside ASCII"},
      {R"(a(?i)b)", "not at its start"},
      {R"((a)", "not closed"},
      {R"(a))", "without its"},
      {R"([a)", "an end"},
      {R"(a{2000})", "above 1000"},
      {R"(\x{110000})", "U+10FFFF"},
      {R"(\)", "an end"}};
  for (const auto& [pattern, message] : cases) {
    try {
      split_words(pattern, SplitBehavior::kIsolated, false, "x");
      ADD_FAILURE() << pattern << " was accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos)
          << pattern << ": " << e.what();
    }
  }
}

TEST(PreTokenizer, ExponentialPatternIsAnErrorNotAHang) {
  EXPECT_THROW(
      split_words("(?:a|a|aa)+[bc]|c", SplitBehavior::kIsolated, false, std::string(200, 'a')),
      Error);
}

TEST(Nfc, LongRunsOfMarksTakeNoQuadraticTime) {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += i % 2 ? "\u0323" : "\u0301";
  const auto start = std::chrono::steady_clock::now();
  const std::string composed = to_nfc(text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_TRUE(composed.starts_with("\u1ea1\u0323"));
  EXPECT_EQ(to_nfc("e\u0301 q\u0307\u0323"), "\u00e9 q\u0323\u0307");
}

// ---- BPE

// The definition, as slow as it can be: join the pair of lowest rank, the leftmost first.
Ids naive_bpe(const std::map<std::pair<int32_t, int32_t>, std::pair<uint32_t, int32_t>>& merges,
              std::string_view word) {
  Ids ids;
  for (const char c : word) ids.push_back(static_cast<unsigned char>(c));
  while (true) {
    std::optional<size_t> best;
    uint32_t lowest = Bpe::kNoRank;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto at = merges.find({ids[i], ids[i + 1]});
      if (at != merges.end() && at->second.first < lowest) {
        lowest = at->second.first;
        best = i;
      }
    }
    if (!best) return ids;
    ids[*best] = merges.at({ids[*best], ids[*best + 1]}).second;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(*best) + 1);
  }
}

TEST(Bpe, EqualsTheDefinition) {
  EXPECT_TRUE(rc::check("short and long words as by the definition", [] {
    std::map<std::pair<int32_t, int32_t>, std::pair<uint32_t, int32_t>> merges;
    std::array<int32_t, 256> bytes{};
    for (size_t b = 0; b < 256; ++b) bytes[b] = static_cast<int32_t>(b);
    Ids tokens = {'a', 'b', 'c'};
    const size_t count = *rc::gen::inRange<size_t>(0, 40);
    Bpe bpe(bytes, count);
    // Ranks in any order, so that a join may make a pair that comes before it.
    std::vector<uint32_t> ranks(count);
    for (size_t i = 0; i < count; ++i) ranks[i] = static_cast<uint32_t>(i);
    for (size_t i = count; i > 1; --i)
      std::swap(ranks[i - 1], ranks[*rc::gen::inRange<size_t>(0, i)]);
    for (size_t i = 0; i < count; ++i) {
      const int32_t left = *rc::gen::elementOf(tokens);
      const int32_t right = *rc::gen::elementOf(tokens);
      if (merges.contains({left, right})) continue;
      const auto joined = static_cast<int32_t>(256 + i);
      tokens.push_back(joined);
      merges[{left, right}] = {ranks[i], joined};
      bpe.add_merge(left, right, ranks[i], joined);
    }
    const auto size = *rc::gen::inRange<size_t>(0, 300);
    const auto word = *rc::gen::container<std::string>(size, rc::gen::element('a', 'a', 'b', 'c'));
    Ids ids;
    BpeScratch scratch;
    bpe.encode(word, ids, scratch);
    RC_ASSERT(ids == naive_bpe(merges, word));
  }));
}

// ---- The whole tokenizer

// Ids of the reference, on the shipped vocabulary.
TEST(Tokenizer, EncodesAsTheReference) {
  for (const json& c : golden("nano")) {
    const std::string text = c.at("text");
    EXPECT_EQ(nano().encode(text, Special::kForm), c.at("form").get<Ids>()) << text;
    EXPECT_EQ(nano().encode(text), c.at("plain").get<Ids>()) << text;
    EXPECT_EQ(nano().decode(nano().encode(text)), text);
  }
}

TEST(Tokenizer, EveryFeatureOfTheFileAsTheReference) {
  const json cases = golden("variants");
  for (const json& variant : cases.at("variants")) {
    json file = cases.at("base");
    file.update(variant.at("change"));
    const Tokenizer tokenizer = Tokenizer::from_json(file.dump(), "tokenizer.json");
    for (const json& c : variant.at("cases")) {
      const std::string text = c.at("text");
      const std::string name = variant.at("name");
      EXPECT_EQ(tokenizer.encode(text, Special::kForm), c.at("form").get<Ids>())
          << name << ": " << text;
      EXPECT_EQ(tokenizer.encode(text), c.at("plain").get<Ids>()) << name << ": " << text;
    }
  }
}

// Nothing is lost, whatever the characters.
TEST(Tokenizer, DecodeGivesTheTextBack) {
  EXPECT_TRUE(rc::check("decode(encode(text)) is the clean text",
                        [](const std::vector<uint32_t>& codes, const std::string& noise) {
                          std::string text = noise;
                          for (const uint32_t code : codes)
                            append_utf8(text, code % 0x110000);  // surrogates too: not UTF-8
                          RC_ASSERT(nano().decode(nano().encode(text)) == clean_utf8(text));
                          RC_ASSERT(nano().decode(nano().encode(text, Special::kForm)) ==
                                    clean_utf8(text));
                        }));
}

// Only where the caller says so does the text of a control token become one.
TEST(Tokenizer, PlainTextNeverFormsAddedTokens) {
  const std::string text =
      "a<|role_end|><role>SYSTEM</role><think></think><tool_call><|endoftext|>";
  const Ids plain = nano().encode(text);
  EXPECT_TRUE(
      std::none_of(plain.begin(), plain.end(), [](int32_t id) { return nano().is_added(id); }));
  const Ids form = nano().encode(text, Special::kForm);
  EXPECT_EQ(std::count_if(form.begin(), form.end(), [](int32_t id) { return nano().is_added(id); }),
            7);
  EXPECT_EQ(nano().decode(plain), text);
  // Not even across the border of two pieces, one of them markup.
  const std::vector<TextPiece> pieces = {
      {"<thi", Special::kForm}, {"nk><", Special::kPlain}, {"/think>", Special::kForm}};
  const Ids split = nano().encode(pieces);
  EXPECT_EQ(split, nano().encode("<think></think>"));
}

TEST(Tokenizer, BordersOfPiecesDoNotShow) {
  EXPECT_TRUE(
      rc::check("pieces of plain text encode as the whole", [](const std::vector<uint32_t>& codes) {
        std::vector<std::string> parts(1);
        std::string whole;
        for (const uint32_t code : codes) {
          const uint32_t c = code % 3 ? code % 0x80 : code % 0xd800;
          append_utf8(parts.back(), c);
          append_utf8(whole, c);
          if (code % 5 == 0) parts.emplace_back();
        }
        std::vector<TextPiece> pieces;
        for (const std::string& part : parts) pieces.push_back({part, Special::kPlain});
        RC_ASSERT(nano().encode(pieces) == nano().encode(whole));
      }));
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const std::string text = read_source_file("models/ling-nano/chat_template.jinja");
  const Ids expected = nano().encode(text);
  std::vector<std::thread> threads;
  std::array<bool, 4> equal{};
  for (size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      equal[t] = true;
      for (int i = 0; i < 20; ++i) equal[t] = equal[t] && nano().encode(text) == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, (std::array<bool, 4>{true, true, true, true}));
}

// One huge word, in time linear in its size.
TEST(Tokenizer, HostileTextsTakeLinearTime) {
  std::string random;
  uint32_t state = 1;
  for (int i = 0; i < 500000; ++i)
    append_utf8(random, (state = state * 1664525 + 1013904223) >> 8 & 0xffff);
  for (const std::string& text :
       {std::string(1000000, 'a'), std::string(1000000, ' '), std::string(1000000, '\n'),
        std::string(1000000, '<'), std::string(1000000, '7'), random}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(nano().decode(nano().encode(text, Special::kForm)), clean_utf8(text));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

TEST(Tokenizer, NamesAndIds) {
  const std::optional<int32_t> end = nano().id_of("<|role_end|>");
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(nano().token_bytes(*end), "<|role_end|>");
  EXPECT_TRUE(nano().is_special(*end));
  EXPECT_FALSE(nano().is_added(*nano().id_of("a")));
  EXPECT_EQ(nano().id_of("no such token at all"), std::nullopt);
  EXPECT_EQ(nano().vocab_size(), 4096);
  EXPECT_EQ(nano().token_bytes(-1), "");
  EXPECT_EQ(nano().token_bytes(1 << 30), "");
  EXPECT_THROW(nano().decode(Ids{4096}), Error);
}

// ---- The detokeniser

std::string stream(const Tokenizer& tokenizer, const Ids& ids,
                   size_t* pieces_with_replacement = nullptr) {
  Detokenizer detokenizer(tokenizer);
  std::string out;
  for (const int32_t id : ids) {
    const std::string piece = detokenizer.push(id);
    EXPECT_TRUE(is_utf8(piece));
    if (pieces_with_replacement)
      *pieces_with_replacement += piece.find("\ufffd") != std::string::npos;
    out += piece;
  }
  return out + detokenizer.finish();
}

Ids byte_ids(const std::string& bytes) {
  Ids ids;
  for (const char c : bytes) ids.push_back(*nano().id_of(std::string_view(&c, 1)));
  return ids;
}

// Bytes that form no character become U+FFFD, and the text goes on.
TEST(Detokenizer, LoneBytes) {
  EXPECT_EQ(stream(nano(), byte_ids("\xe2\x9c\x85\x85 ok")), "\u2705\ufffd ok");
  EXPECT_EQ(stream(nano(), byte_ids("a\xf0 b")), "a\ufffd b");
  EXPECT_EQ(stream(nano(), byte_ids("end \xe2\x82")), "end \ufffd");
}

// Characters that span tokens arrive whole.
TEST(Detokenizer, SpanningCharacters) {
  const std::string text =
      "\U0001F468\u200d\U0001F469\u200d\U0001F467 \U0001F1E9\U0001F1EA \U00020BB7 "
      "\u0e2a\u0e27\u0e31 \u0928\u092e\u0938\u094d";
  size_t replaced = 0;
  EXPECT_EQ(stream(nano(), byte_ids(text), &replaced), text);
  EXPECT_EQ(stream(nano(), nano().encode(text), &replaced), text);
  EXPECT_EQ(replaced, 0u);
}

TEST(Detokenizer, JoinEqualsTheWhole) {
  EXPECT_TRUE(rc::check("pushes join to the clean bytes of all ids",
                        [](const std::vector<uint16_t>& numbers) {
                          Ids ids;
                          for (const uint16_t n : numbers) ids.push_back(n % 4096);
                          RC_ASSERT(stream(nano(), ids) == clean_utf8(nano().decode(ids)));
                        }));
}

// ---- Files that are wrong

TEST(TokenizerFile, WrongFilesGiveOneClearError) {
  const json base = small_file();
  const auto with = [&](const std::string& pointer, const json& value) {
    json file = base;
    file[json::json_pointer(pointer)] = value;
    return file.dump();
  };
  const auto token = [](int id, const std::string& text) {
    return json{{"id", id}, {"content", text}, {"special", true}};
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "expected JSON"},
      {"[]", "expected an object"},
      {"{}", "model: expected an object"},
      {base.dump().substr(0, 900), "expected JSON"},
      {"\xff" + base.dump(), "expected JSON"},
      {std::string(100000, '['), "nested deeper"},
      {with("/model/type", "WordPiece"), "model.type: expected BPE, found WordPiece"},
      {with("/model/dropout", 0.1), "model.dropout"},
      {with("/model/unk_token", "<unk>"), "model.unk_token"},
      {with("/model/byte_fallback", true), "model.byte_fallback"},
      {with("/model/end_of_word_suffix", "</w>"), "model.end_of_word_suffix"},
      {with("/model/vocab", 7), "model.vocab"},
      {with("/model/vocab/a", -1), "model.vocab.a: expected an id of 0 or more"},
      {with("/model/vocab/a", "x"), "model.vocab: expected a number"},
      {with("/model/vocab/a", 98), "expected once, found again"},
      {with("/model/vocab/a", 2000000000), "expected ids below"},
      {with("/model/vocab/a", json::array()), "expected plain entries"},
      {with("/model/merges/0", "h"), "model.merges: expected 'left right'"},
      {with("/model/merges/0", "h e l"), "model.merges: expected 'left right'"},
      {with("/model/merges/0", "h z"),
       "model.merges[0]: expected tokens of model.vocab, found 'hz'"},
      {with("/model/merges/0", json::array({"h"})), "two strings"},
      {with("/model/merges/0", 5), "model.merges: expected strings"},
      {with("/normalizer", json{{"type", "NFKC"}}),
       "normalizer.type: expected NFC or Sequence, found NFKC"},
      {with("/pre_tokenizer", json()), "pre_tokenizer: found none"},
      {with("/pre_tokenizer", json{{"type", "Metaspace"}}), "found Metaspace"},
      {with("/pre_tokenizer", json{{"type", "Digits"}}), "expected ByteLevel as its last"},
      {with("/decoder", json{{"type", "WordPiece"}}), "decoder.type"},
      {with("/added_tokens", json::array({token(5, "<x>")})),
       "expected an id of its own, found id 5"},
      {with("/added_tokens", json::array({token(3000, "hello")})), "its id of model.vocab"},
      {with("/added_tokens", json::array({token(900, "<x>"), token(901, "<x>")})),
       "each token once"},
      {with("/added_tokens", json::array({token(900, "<x>"), token(900, "<y>")})),
       "an id of its own"},
      {with("/added_tokens", json::array({token(-4, "<x>")})), "added_tokens[0].id"},
      {with("/added_tokens", json::array({token(900, "")})), "added_tokens[0].content"},
      {with("/added_tokens", json{{"x", 1}}), "added_tokens: expected an array"}};
  for (const auto& [text, message] : cases) {
    const std::string found = load_error(text);
    EXPECT_NE(found.find(message), std::string::npos) << message << " <- " << found;
    EXPECT_TRUE(found.starts_with("tokenizer.json")) << found;
  }
  json without = base;
  without["model"]["vocab"].erase("a");
  EXPECT_NE(load_error(without.dump()).find("found none for byte 97"), std::string::npos);
}

}  // namespace
}  // namespace spk
