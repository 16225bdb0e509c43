// /props: what is really running, the defaults that a request without a field gets, what can be
// asked for.
#include "server/json_write.h"
#include "server/routes.h"
#include "server/server.h"

namespace spk::server {

std::string props_json(const Service& service, const std::string& live) {
  const ServerOptions& o = service.options;
  const Engine& engine = service.engine();
  const MemoryPlan& memory = engine.memory();
  JsonWriter w;
  w.object().field("model", o.model_name).field("build", o.build);
  w.field("context", memory.context).field("layers", engine.config().layers);
  w.field("vocabulary", engine.config().shape.vocab);
  w.field("plan", engine.plan_text()).key("memory").object();
  w.field("weights", memory.weights).field("caches", memory.caches);
  w.field("activations", memory.scratch)
      .field("working", memory.working)
      .field("limit", memory.limit)
      .end();
  w.key("notes").array();
  for (const std::string& note : engine.notes()) w.string(note);
  const SamplerParams& p = o.sampling;
  w.end().key("defaults").object().field("temperature", p.temperature).field("top_k", p.top_k);
  w.field("top_p", p.top_p).field("min_p", p.min_p);
  w.field("repetition_penalty", p.repetition_penalty);
  w.field("presence_penalty", p.presence_penalty);
  w.field("frequency_penalty", p.frequency_penalty).key("thinking").object();
  w.field("openai", o.thinking).field("anthropic", false).key("budget");
  o.thinking_budget < 0 ? w.null() : w.integer(o.thinking_budget);
  w.end().end().key("limits").object().field("n", 8).field("stop", 16).field("top_logprobs", 20);
  w.field("queue", static_cast<int64_t>(o.queue));
  w.field("body_bytes", static_cast<int64_t>(o.http.body_limit));
  w.field("connections", static_cast<int64_t>(o.http.connections));
  w.field("keep_alive_seconds", o.keep_alive_seconds);
  w.field("stall_seconds", o.http.stall_seconds).end();
  w.key("capabilities").object().field("tools", true).field("parallel_tool_calls", true);
  w.field("tool_choice_required", false).field("json_schema", false).field("thinking", true);
  w.field("thinking_budget", true).field("logprobs", true).field("images", false);
  w.field("parallel_requests", 1).field("api_key", !o.api_key.empty()).end();
  w.key("routes").array();
  for (const std::string& route : route_list()) w.string(route);
  return w.end().key("live").raw(live).end().take();
}

std::string roof_json(Service& service) {
  const ModelSizes& sizes = service.engine().sizes();
  const std::optional<double> bandwidth = service.jobs.bandwidth();
  JsonWriter w;
  w.object().key("bandwidth_bytes_s");
  bandwidth&&* bandwidth > 0 ? w.number(*bandwidth) : w.null();
  w.field("measured", bandwidth.has_value()).key("pass").array();
  for (int i = 0; i < kComponents; ++i) {
    const auto component = static_cast<Component>(i);
    if (component == Component::kMtp || sizes.component_token_bytes[i] == 0) continue;
    w.object().field("name", component_name(component));
    w.field("bytes", sizes.component_token_bytes[i]).end();
  }
  // The recurrent state is read and written by every pass; latents grow with the context.
  w.object().field("name", "state").field("bytes", 2 * sizes.state_bytes).end().end();
  w.field("latent_bytes_per_context_token", sizes.latent_bytes_per_token_exact);
  w.field("draft_bytes", sizes.component_token_bytes[static_cast<int>(Component::kMtp)]);
  return w.end().take();
}

}  // namespace spk::server
