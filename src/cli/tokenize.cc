// `tokenize`: text to ids and back, JSON lines, and counts over files. Needs tokenizer.json only,
// no weights.
#include "base/error.h"
#include "base/file.h"
#include "base/json_whole.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/source.h"
#include "cli/values.h"
#include "cli/verbs.h"
#include "text/utf8.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace spk::cli {
namespace {

std::string joined(const std::vector<int32_t>& ids, const char* separator) {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) text += separator;
    text += std::to_string(ids[i]);
  }
  return text;
}

// One JSON string a line in, one JSON array a line out; each is written as soon as it is read.
void encode_jsonl(const std::string& file, const Tokenizer& tokenizer, Special special) {
  LineReader input(file, kMaxText);
  std::string line;
  for (int64_t number = 1; input.next(line); ++number) {
    const auto value = nlohmann::json::parse(json_whole(line), nullptr, false);
    if (!value.is_string()) {
      fail_input(input.name(), ": line ", number, ": expected one JSON string, found '",
                 clean_utf8(line.substr(0, 60)), line.size() > 60 ? "...'" : "'");
    }
    out(cat("[", joined(tokenizer.encode(value.get_ref<const std::string&>(), special), ","),
            "]\n"));
  }
}

// "id count" lines, most frequent first, then by id.
void count_files(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                 Special special) {
  std::vector<int64_t> counts(static_cast<size_t>(tokenizer.vocab_size()), 0);
  for (const std::string& file : files) {
    for (const int32_t id : tokenizer.encode(read_input(file, kMaxText), special))
      ++counts[static_cast<size_t>(id)];
  }
  std::vector<std::pair<int64_t, int64_t>> order;  // (-count, id)
  for (size_t id = 0; id < counts.size(); ++id) {
    if (counts[id] > 0) order.emplace_back(-counts[id], static_cast<int64_t>(id));
  }
  std::sort(order.begin(), order.end());
  for (const auto& [count, id] : order) out(cat(id, " ", -count, "\n"));
}

}  // namespace

int verb_tokenize(const Options& options) {
  const TokenizeOptions& k = options.tokenize;
  const auto json = model_text(options.model, "tokenizer.json");
  const std::string name = model_name(options.model);
  if (!json) fail_input("expected tokenizer.json in ", name, ", found no such file");
  const Tokenizer tokenizer = Tokenizer::from_json(*json, name + "/tokenizer.json");
  const Special special = k.special ? Special::kForm : Special::kPlain;

  if (k.decode) {
    const std::vector<int32_t> ids = parse_ids(*k.decode);
    check_ids(ids, tokenizer.vocab_size());
    out(tokenizer.decode(ids));
  } else if (!k.jsonl.empty()) {
    encode_jsonl(k.jsonl, tokenizer, special);
  } else if (!k.count.empty()) {
    count_files(k.count, tokenizer, special);
  } else {
    const std::string text = k.text ? *k.text : read_input(k.file.empty() ? "-" : k.file, kMaxText);
    out(joined(tokenizer.encode(text, special), " ") + "\n");
  }
  return 0;
}

}  // namespace spk::cli
