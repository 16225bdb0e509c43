#include "cli/answer.h"

#include "cli/output.h"

#include <cstdio>

namespace spk::cli {
namespace {

constexpr std::string_view kDim = "\033[2m";
constexpr std::string_view kNormal = "\033[0m";

}  // namespace

AnswerPrinter::~AnswerPrinter() {
  if (dim_ && part_ == Part::kReasoning) {
    std::fwrite(kNormal.data(), 1, kNormal.size(), stdout);
    std::fflush(stdout);
  }
}

void AnswerPrinter::part(Part which, std::string_view text) {
  if (which != part_ || which == Part::kToolCall) {
    const size_t start = text.find_first_not_of('\n');
    if (start == std::string_view::npos) return;  // nothing of the new part yet
    text.remove_prefix(start);
    held_.clear();
    if (dim_ && part_ == Part::kReasoning) out(kNormal);
    if (part_ != Part::kNone) out(part_ == which ? "\n" : "\n\n");
    if (dim_ && which == Part::kReasoning) out(kDim);
    part_ = which;
  }
  if (text.empty()) return;
  const size_t last = text.find_last_not_of('\n');
  if (last == std::string_view::npos) {
    held_ += text;
    return;
  }
  out(held_);
  out(text.substr(0, last + 1));
  held_ = text.substr(last + 1);
  line_open_ = true;
  out_flush();
}

void AnswerPrinter::raw(std::string_view text) {
  if (text.empty()) return;
  out(text);
  out_flush();
  line_open_ = text.back() != '\n';
}

void AnswerPrinter::finish() {
  if (dim_ && part_ == Part::kReasoning) out(kNormal);
  if (line_open_) out("\n");
  part_ = Part::kNone;
  held_.clear();
  line_open_ = false;
  out_flush();
}

}  // namespace spk::cli
