#include "cli/option_checks.h"

#include "base/error.h"
#include "cli/values.h"
#include "engine/require.h"
#include "formats/untrusted.h"
#include "text/utf8.h"

#include <algorithm>

namespace spk::cli {

void check_available(const std::string& text, std::span<const std::string_view> known,
                     std::span<const std::string_view> now) {
  if (std::find(now.begin(), now.end(), text) != now.end()) return;
  check_choice(text, known);
  fail_usage("'", text, "' is not in this version; available now: ", join_choices(now));
}

void check_draft(const std::string& text) { parse_auto_or_int(text, 0, 7); }

void check_require(const std::string& text) {
  constexpr std::array<std::string_view, 3> kKeys = {"moe", "lm-head", "draft"};
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at), key = item.substr(0, item.find('='));
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      fail_usage("expected moe=, lm-head= or draft=, found '", item, "'", did_you_mean(key, kKeys));
    at = end + 1;
  }
  parse_requirements(text);
}

void check_rope_scaling(const std::string& text) {
  if (text == "none") return;
  constexpr std::string_view kYarn = "yarn:";
  if (text.rfind(kYarn, 0) != 0) fail_usage("expected none or yarn:FACTOR, found '", text, "'");
  parse_real(std::string_view(text).substr(kYarn.size()), 1, 64);
}

void check_backend_spec(const std::string& text) {
  constexpr std::array<std::string_view, 4> kBackends = {"auto", "reference", "cpu", "cuda"};
  constexpr std::array<std::string_view, 2> kPrecisions = {"exact", "fast"};
  const size_t colon = std::min(text.find(':'), text.size());
  check_choice(std::string_view(text).substr(0, colon), kBackends);
  if (colon < text.size()) check_choice(std::string_view(text).substr(colon + 1), kPrecisions);
}

// The text itself is not shown: it may be a key.
void check_visible(std::string_view text, std::string_view what) {
  if (text.empty()) fail_usage("expected ", what, ", found nothing");
  for (const char c : text) {
    if (c > ' ' && c <= '~') continue;
    const std::string found =
        c == ' ' ? "a blank" : cat("the byte ", printable(std::string_view(&c, 1)));
    fail_usage("expected ", what, " of visible ASCII characters, found ", found);
  }
}

void check_origin(const std::string& text) {
  check_visible(text, "an origin");
  const size_t at = text.find("://");
  const std::string_view host =
      at == std::string::npos ? "" : std::string_view(text).substr(at + 3);
  if (at == 0 || host.empty() || host.find('/') != std::string_view::npos)
    fail_usage("expected an origin such as https://example.org, found '", text, "'");
}

bool is_name(std::string_view text) {
  const bool control = std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  return !text.empty() && !control && clean_utf8(text) == text;
}

void check_name(std::string_view text) {
  if (text.empty()) fail_usage("expected a name, found nothing");
  if (!is_name(text))
    fail_usage("expected a name in UTF-8 without control bytes, found '", printable(text), "'");
}

bool parse_on_off(const std::string& text) {
  constexpr std::array<std::string_view, 2> kChoices = {"on", "off"};
  check_choice(text, kChoices);
  return text == "on";
}

}  // namespace spk::cli
