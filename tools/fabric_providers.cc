#include "tools/fabric_providers.h"

#include <memory>
#include <set>

#ifdef LOCHOS_HAVE_FABRIC
#include <rdma/fabric.h>
#endif

namespace lochos {

std::vector<std::string> fabric_providers() {
  std::set<std::string> names;
#ifdef LOCHOS_HAVE_FABRIC
  fi_info* list = nullptr;
  if (fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, nullptr, &list) == 0) {
    const std::unique_ptr<fi_info, decltype(&fi_freeinfo)> owner(list, &fi_freeinfo);
    for (const fi_info* entry = list; entry != nullptr; entry = entry->next)
      names.insert(entry->fabric_attr->prov_name);
  }
#endif
  return {names.begin(), names.end()};
}

}  // namespace lochos
