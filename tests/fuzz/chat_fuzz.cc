// Fuzz target of the chat markup; chat_fuzz.h says what an input is and what must hold.
#include "chat_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spk::fuzz::check_chat(data, size);
  return 0;
}
