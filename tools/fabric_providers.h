// Which providers libfabric offers on this host. Thread-safe.
#pragma once

#include <string>
#include <vector>

namespace lochos {

// Sorted, without duplicates. Empty if this build has no libfabric, or it offers nothing.
std::vector<std::string> fabric_providers();

}  // namespace lochos
