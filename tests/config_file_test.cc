// The --config file: what it may hold, what is refused by line, which entry counts.
#include "cli/config_file.h"

#include "base/error.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace spk::cli {
namespace {

std::string complaint(const std::string& text) {
  try {
    parse_config_text(text, "f.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "taken";
}

// "" when all is taken.
std::string refusal(const std::string& text, Verb verb = Verb::kRun) {
  Options o;
  const std::vector<OptionRow> rows = option_rows(o);
  try {
    apply_config(parse_config_text(text, "f.toml"), "f.toml", verb, rows,
                 [](const OptionRow&) { return false; });
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
}

TEST(ConfigFile, TomlAndIni) {
  const auto entries = parse_config_text(
      "\xef\xbb\xbf# first\r\ntop-k = 20 # why\n; old\n\n[run]\r\nsystem = \"a # \\\"b\\\"\\n\"\n"
      "[ 'tokenize' ]\ntext = Be brief, please. \nstop = ['x]', \"y\",\n  # one more\n  z ,\n]\n"
      "bench.in=7\n[default]\nbench.in=7\nmin_p = '0'",
      "f.toml");
  ASSERT_EQ(entries.size(), 7u);
  EXPECT_EQ(entries[0].section, "");
  EXPECT_EQ(entries[0].values, std::vector<std::string>{"20"});
  EXPECT_EQ(entries[1].section, "run");
  EXPECT_EQ(entries[1].values, std::vector<std::string>{"a # \"b\"\n"});
  EXPECT_EQ(entries[2].section, "tokenize");
  EXPECT_EQ(entries[2].values, std::vector<std::string>{"Be brief, please."});
  EXPECT_TRUE(entries[3].is_list);
  EXPECT_EQ(entries[3].values, (std::vector<std::string>{"x]", "y", "z"}));
  EXPECT_EQ(entries[4].key, "bench.in");  // dots have a meaning at the top only
  EXPECT_EQ(entries[5].section, "bench");
  EXPECT_EQ(entries[5].key, "in");
  EXPECT_EQ(entries[6].key, "min-p");
  EXPECT_EQ(entries[6].line, 16);
}

TEST(ConfigFile, WhatIsNoConfigFileIsRefusedByLine) {
  EXPECT_EQ(complaint("a = 1\njunk\n"),
            "f.toml: line 2: expected '=' after 'junk', found the end "
            "of the line");
  EXPECT_EQ(complaint("{\"top-k\": 1}"),
            "f.toml: line 1: expected a [section] or 'option = value'"
            ", found '{\"top-k\": 1}'");
  EXPECT_EQ(complaint("a ="), "f.toml: line 1: expected a value, found the end of the line");
  EXPECT_EQ(complaint("a = # nothing"), "f.toml: line 1: expected a value, found '# nothing'");
  EXPECT_EQ(complaint("[run\na = 1"),
            "f.toml: line 1: expected ']' after the name of a section, found the end of the line");
  EXPECT_EQ(complaint("[]"), "f.toml: line 1: expected the name of a section, found ']'");
  EXPECT_EQ(complaint("[[run]]"), "f.toml: line 1: expected the name of a section, found '[run]]'");
  EXPECT_EQ(complaint("a = \"b"),
            "f.toml: line 1: expected \" at the end of a text, found the end of the line");
  EXPECT_EQ(complaint("a = \"b\" c"), "f.toml: line 1: expected the end of the line, found 'c'");
  EXPECT_EQ(complaint("a = [1, 2\nb = 3\n"),
            "f.toml: line 2: expected ',' or ']' in a list, found 'b = 3'");
  EXPECT_EQ(complaint("a = [1,\n"),
            "f.toml: line 2: expected ']' after a list, found the end of the "
            "file");
  EXPECT_EQ(complaint("a = \"\\q\""),
            "f.toml: line 1: expected one of \\\" \\\\ \\n \\t (or '...', "
            "which keeps its text), found 'q\"'");
  EXPECT_EQ(complaint(".a = 1"), "f.toml: line 1: expected section.option, found an empty part");
  EXPECT_EQ(complaint("a = b\x01"), "f.toml: line 1: expected text, found a control byte, \\x01");
  EXPECT_EQ(complaint(std::string("a\0", 2)),
            "f.toml: line 1: expected '=' after 'a', found '\\x00'");
}

TEST(ConfigFile, NamesAndValuesAreCheckedInEverySection) {
  EXPECT_EQ(refusal("top-k = 3\n[bench]\nin = 7\n[logits]\nmtp = true\n"), "");
  EXPECT_NE(refusal("[bench]\nstop = x\n")
                .find("line 2: option 'stop' in section [bench] belongs "
                      "to: run"),
            std::string::npos);
  EXPECT_NE(refusal("[bench]\nfrobnicate = 3\n").find("unknown option 'frobnicate'"),
            std::string::npos);
  EXPECT_NE(refusal("[bench]\nin = lots\n").find("line 2: in: expected a whole number"),
            std::string::npos);
  EXPECT_NE(refusal("in = lots\n").find("found 'lots'"), std::string::npos);
  EXPECT_NE(refusal("[logits]\nmtp = maybe\n").find("expected true or false, found 'maybe'"),
            std::string::npos);
  EXPECT_NE(refusal("top-k = [3, 4]\n").find("expected one value, found a list of 2"),
            std::string::npos);
  EXPECT_NE(refusal("top-k = true\n").find("expected a whole number"), std::string::npos);
  EXPECT_NE(refusal("top-k = 3\ntop-k = 4\n").find("line 2: top-k: expected once, found in line 1"),
            std::string::npos);
  EXPECT_NE(refusal("[runn]\n"
                    "a = 1\n")
                .find("did you mean 'run'?"),
            std::string::npos);
  EXPECT_EQ(refusal("stop = a\nstop = b\n"), "");
}

TEST(ConfigFile, TheSectionGoesBeforeTheTopAndBothBehindWhatIsGiven) {
  Options o;
  const std::vector<OptionRow> rows = option_rows(o);
  const auto entries = parse_config_text(
      "max-tokens = 3\nseed = 5\ntop-k = 9\n[bench]\nseed = 6\n[run]\nmax-tokens = 4\n", "f");
  apply_config(entries, "f", Verb::kRun, rows,
               [](const OptionRow& r) { return r.name == "top-k"; });
  EXPECT_EQ(o.sampling.max_tokens, 4);
  EXPECT_EQ(o.sampling.seed, 5);
  EXPECT_FALSE(o.sampling.top_k.has_value());
}

RC_GTEST_PROP(ConfigFile, AnyBytesAreReadOrRefused, ()) {
  const auto text = *rc::gen::container<std::string>(rc::gen::element(
      'a', '=', '[', ']', '"', '\'', '\\', ',', '#', ';', '\n', '\r', ' ', '\0', '\xff', '.'));
  try {
    for (const ConfigEntry& entry : parse_config_text(text, "f")) RC_ASSERT(!entry.key.empty());
  } catch (const Error& error) {
    RC_ASSERT(error.kind() == ErrorKind::kInput);
  }
}

}  // namespace
}  // namespace spk::cli
