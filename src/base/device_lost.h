// A device whose every further call fails: an illegal access, a failed launch, a card that fell off
// the bus. Whoever holds it must end; trying again, or going on without a word, is what must not
// be.
#pragma once

#include "base/error.h"

namespace spk {

class DeviceLost : public Error {
 public:
  explicit DeviceLost(const std::string& what) : Error(ErrorKind::kResource, what) {}
};

}  // namespace spk
