#include "backend/layout.h"

#include "base/error.h"

namespace spk {

void Step::check_abort() const {
  if (abort != nullptr && abort->load(std::memory_order_relaxed))
    throw Error(ErrorKind::kInterrupted, "interrupted");
}

Scratch Scratch::first(int64_t n) const {
  Scratch t = *this;
  for (Rows* r : {&t.x, &t.h, &t.o, &t.q, &t.k, &t.v, &t.f, &t.g, &t.beta, &t.q_a, &t.kv,
                  &t.q_latent, &t.z, &t.mix, &t.gate, &t.up, &t.route_weight, &t.joined})
    if (r->buffer) *r = r->slice_rows(0, n);
  if (t.route_id.buffer) t.route_id = t.route_id.slice_rows(0, n);
  return t;
}

}  // namespace spk
