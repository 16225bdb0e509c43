#include "backend/cuda/sources.h"

#include "base/error.h"

#include <algorithm>
#include <cstdint>
#include <set>

namespace spk::cuda {
namespace {

// One row of the table in the generated assembler file; a row of null pointers ends it.
struct EmbeddedSource {
  const char* name;
  const char* begin;
  const char* end;
};
extern "C" const EmbeddedSource spk_kernel_sources_table[];

// Names that a text includes: lines of the form #include "name".
std::vector<std::string> includes_of(std::string_view text) {
  std::vector<std::string> names;
  constexpr std::string_view kInclude = "#include \"";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.substr(0, kInclude.size()) == kInclude) {
      const std::string_view rest = line.substr(kInclude.size());
      names.emplace_back(rest.substr(0, rest.find('"')));
    }
    at = end + 1;
  }
  return names;
}

}  // namespace

const std::vector<SourceText>& kernel_sources() {
  static const std::vector<SourceText> sources = [] {
    std::vector<SourceText> all;
    for (const EmbeddedSource* s = spk_kernel_sources_table; s->name; ++s)
      all.push_back({s->name, {s->begin, static_cast<size_t>(s->end - s->begin)}});
    return all;
  }();
  return sources;
}

std::vector<SourceText> reachable_sources(const std::vector<SourceText>& all,
                                          std::string_view header) {
  std::set<std::string> seen;
  std::vector<std::pair<std::string, std::string>> open = {{std::string(header), "the kernel"}};
  std::vector<SourceText> found;
  while (!open.empty()) {
    const std::string name = open.back().first, from = open.back().second;
    open.pop_back();
    if (!seen.insert(name).second) continue;
    const auto at =
        std::find_if(all.begin(), all.end(), [&](const SourceText& s) { return s.name == name; });
    if (at == all.end())
      fail_resource("kernel sources: ", from, " includes ", name, ", which is not embedded");
    found.push_back(*at);
    for (std::string& next : includes_of(at->text)) open.emplace_back(std::move(next), name);
  }
  std::sort(found.begin(), found.end(),
            [](const SourceText& a, const SourceText& b) { return a.name < b.name; });
  return found;
}

uint64_t hash_bytes(std::string_view bytes, uint64_t start) {
  uint64_t h = start;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

}  // namespace spk::cuda
