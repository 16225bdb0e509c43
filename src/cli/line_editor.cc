#include "cli/line_editor.h"

#include "cli/output.h"

#include <histedit.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <filesystem>
#include <system_error>

namespace spk::cli {
namespace {

constexpr int kHistoryEntries = 500;
constexpr size_t kLongestEntry =
    4096;                         // together at most 2 MiB (8 MiB when every byte needs escaping)
constexpr int kPasteWaitMs = 20;  // a terminal delivers a paste at once, nobody types this fast

// Reads one character; Ctrl-C ends the read, which the library's own reader would hide. The wait is
// cut into pieces since a signal just before a blocking read would be noticed at the next key only.
int read_character(EditLine*, wchar_t* out) {
  constexpr int kWaitMs = 100;
  std::mbstate_t state{};
  while (true) {
    if (interrupted()) return -1;
    pollfd wait{STDIN_FILENO, POLLIN, 0};
    if (poll(&wait, 1, kWaitMs) <= 0) continue;  // nothing yet, a signal, or a resized window
    char byte = 0;
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return static_cast<int>(got);
    const size_t used = std::mbrtowc(out, &byte, 1, &state);
    if (used == static_cast<size_t>(-2)) continue;  // more bytes of this character
    if (used == static_cast<size_t>(-1)) {
      *out = L'?';  // not text in this locale
      return 1;
    }
    return 1;
  }
}

bool more_is_waiting() {
  pollfd wait{STDIN_FILENO, POLLIN, 0};
  return poll(&wait, 1, kPasteWaitMs) == 1 && (wait.revents & POLLIN) != 0;
}

}  // namespace

struct LineEditor::Impl {
  EditLine* line = nullptr;
  History* history = nullptr;
  std::string history_file;
  std::string prompt;

  static char* show_prompt(EditLine* line) {
    void* self = nullptr;
    el_get(line, EL_CLIENTDATA, &self);
    return static_cast<Impl*>(self)->prompt.data();
  }

  void load_history() {
    HistEvent event;
    history_w_free();
    history = history_init();
    ::history(history, &event, H_SETSIZE, kHistoryEntries);
    ::history(history, &event, H_SETUNIQUE, 1);
    struct stat info {};
    constexpr off_t kTooLarge = 8 << 20;  // not written by us
    if (!history_file.empty() && stat(history_file.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        info.st_size < kTooLarge) {
      ::history(history, &event, H_LOAD, history_file.c_str());
    }
  }
  void history_w_free() {
    if (history != nullptr) history_end(history);
    history = nullptr;
  }
  void remember(const std::string& text) {
    if (text.empty() || text.size() > kLongestEntry) return;
    HistEvent event;
    ::history(history, &event, H_ENTER, text.c_str());
    if (!history_file.empty()) ::history(history, &event, H_SAVE, history_file.c_str());
  }
};

LineEditor::LineEditor(const std::string& history_file) : impl_(std::make_unique<Impl>()) {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  impl_->history_file = history_file;
  impl_->load_history();
  impl_->line = el_init("sparkling", stdin, stdout, stderr);
  EditLine* line = impl_->line;
  el_set(line, EL_CLIENTDATA, impl_.get());
  el_set(line, EL_PROMPT, &Impl::show_prompt);
  el_set(line, EL_EDITOR, "emacs");
  el_set(line, EL_HIST, ::history, impl_->history);
  el_set(line, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_set(line, EL_GETCFN, read_character);
  el_source(line, nullptr);  // the user's ~/.editrc
}

LineEditor::~LineEditor() {
  el_end(impl_->line);
  impl_->history_w_free();
}

LineStatus LineEditor::read(const std::string& prompt, std::string& text) {
  text.clear();
  impl_->prompt = prompt;
  bool complete = false;
  while (!complete) {
    int count = 0;
    // The library would do it behind the prompt; a key in between went to the terminal's own
    // editing, which makes Ctrl-D disappear.
    el_set(impl_->line, EL_PREP_TERM, 1);
    const char* got = el_gets(impl_->line, &count);
    if (interrupted()) return LineStatus::kInterrupted;
    if (got == nullptr || count <= 0) {
      if (text.empty()) return LineStatus::kEnd;
      break;
    }
    text.append(got, static_cast<size_t>(count));
    const bool ended = text.back() == '\n';
    if (ended) text.pop_back();
    if (ended && !text.empty() && text.back() == '\\') {
      text.back() = '\n';
      impl_->prompt = "... ";
      continue;
    }
    complete = !(ended && more_is_waiting());
    if (!complete) {
      text += '\n';
      impl_->prompt = "... ";
    }
  }
  impl_->remember(text);
  return LineStatus::kText;
}

std::string history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home == '/') {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return "";
  }
  folder /= "sparkling";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return "";
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  return (folder / "history").string();
}

}  // namespace spk::cli
