#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>

namespace spk::server {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Histogram;

struct Metrics::Impl {
  prometheus::Family<prometheus::Counter>& counters(const char* name, const char* help) {
    return BuildCounter().Name(name).Help(help).Register(registry);
  }
  prometheus::Counter& counter(const char* name, const char* help) {
    return counters(name, help).Add({});
  }
  prometheus::Gauge& gauge(const char* name, const char* help) {
    return BuildGauge().Name(name).Help(help).Register(registry).Add({});
  }
  Histogram& histogram(const char* name, const char* help,
                       const Histogram::BucketBoundaries& buckets) {
    return BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
  }

  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests =
      counters("sparkling_requests_total", "Requests by endpoint and HTTP status");
  prometheus::Counter& prompt = counter("sparkling_prompt_tokens_total", "Tokens of prompts");
  prometheus::Counter& cached =
      counter("sparkling_cached_tokens_total", "Prompt tokens taken from the live session");
  prometheus::Counter& output = counter("sparkling_output_tokens_total", "Tokens generated");
  prometheus::Counter& reasoning =
      counter("sparkling_reasoning_tokens_total", "Tokens generated as reasoning");
  prometheus::Counter& prefill_seconds =
      counter("sparkling_prefill_seconds_total", "Time spent reading prompts");
  prometheus::Counter& decode_seconds =
      counter("sparkling_decode_seconds_total", "Time spent generating");
  prometheus::Counter& draft_seconds =
      counter("sparkling_draft_seconds_total", "Part of decoding: drafts");
  prometheus::Counter& verify_seconds =
      counter("sparkling_verify_seconds_total", "Part of decoding: passes of the model");
  prometheus::Counter& accept_seconds =
      counter("sparkling_accept_seconds_total", "Part of decoding: sampling and acceptance");
  prometheus::Counter& bytes =
      counter("sparkling_decode_bytes_total", "Bytes of weights and state read while decoding");
  prometheus::Counter& cycles = counter("sparkling_cycles_total", "Decode cycles");
  prometheus::Counter& gone =
      counter("sparkling_clients_gone_total", "Answers whose client went away");
  prometheus::Family<prometheus::Counter>& drafted =
      counters("sparkling_drafted_tokens_total", "Drafts by position");
  prometheus::Family<prometheus::Counter>& accepted =
      counters("sparkling_accepted_tokens_total", "Accepted drafts by position");
  prometheus::Gauge& waiting = gauge("sparkling_queue_waiting", "Requests that wait");
  prometheus::Gauge& running = gauge("sparkling_running", "Requests being served");
  prometheus::Gauge& connections = gauge("sparkling_connections", "Open connections");
  Histogram& queue_time = histogram("sparkling_queue_seconds", "Time in the queue",
                                    {0.001, 0.01, 0.1, 1, 5, 15, 60, 300});
  Histogram& first_token =
      histogram("sparkling_first_token_seconds", "From the request to its first token",
                {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300});
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::request(std::string_view endpoint, int status) {
  impl_->requests.Add({{"endpoint", std::string(endpoint)}, {"status", std::to_string(status)}})
      .Increment();
}

void Metrics::answer(const Timings& t, int64_t reasoning_tokens, double queue_seconds,
                     double first_token_seconds) {
  Impl& m = *impl_;
  m.prompt.Increment(static_cast<double>(t.prompt_tokens));
  m.cached.Increment(static_cast<double>(t.cached_tokens));
  m.output.Increment(static_cast<double>(t.output_tokens));
  m.reasoning.Increment(static_cast<double>(reasoning_tokens));
  m.prefill_seconds.Increment(t.prefill_seconds);
  m.decode_seconds.Increment(t.decode_seconds);
  m.draft_seconds.Increment(t.drafts.draft_seconds);
  m.verify_seconds.Increment(t.drafts.verify_seconds);
  m.accept_seconds.Increment(t.drafts.accept_seconds);
  m.bytes.Increment(static_cast<double>(t.weight_bytes + t.state_bytes));
  m.cycles.Increment(static_cast<double>(t.drafts.cycles));
  for (size_t i = 0; i < t.drafts.drafted.size(); ++i) {
    if (t.drafts.drafted[i] == 0) continue;
    const prometheus::Labels position = {{"position", std::to_string(i + 1)}};
    m.drafted.Add(position).Increment(static_cast<double>(t.drafts.drafted[i]));
    m.accepted.Add(position).Increment(static_cast<double>(t.drafts.accepted[i]));
  }
  m.queue_time.Observe(queue_seconds);
  m.first_token.Observe(first_token_seconds);
}

void Metrics::client_gone() { impl_->gone.Increment(); }

std::string Metrics::text(size_t waiting, bool busy, size_t connections) {
  impl_->waiting.Set(static_cast<double>(waiting));
  impl_->running.Set(busy ? 1 : 0);
  impl_->connections.Set(static_cast<double>(connections));
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace spk::server
