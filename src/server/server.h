// The server as a whole: listens at once, loads the model beside, serves until it is told to stop.
#pragma once

#include "engine/jobs.h"
#include "server/service.h"

#include <functional>
#include <string>
#include <vector>

namespace spk::server {

// Serves until `stop` returns true (asked a few times a second), then drains. `ready` is called
// once with the address when the model is loaded. Errors of binding and loading are thrown. `load`
// runs on the engine's thread.
void serve(const ServerOptions& options, Jobs::Load load,
           const std::function<void(std::string)>& ready, const std::function<bool()>& stop);

// Refuses what would open the machine to others: Error(kUsage) for an address that is not loopback
// without a key.
void check_exposure(const ServerOptions& options, bool allow_open);

// "GET /health" and so on, for tests and documents.
std::vector<std::string> route_list();

}  // namespace spk::server
