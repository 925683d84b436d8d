// One port of an RDMA device: what it is, what it can do, and an opened handle on it.
// Engine thread only, except where a function says otherwise.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "transport/address.h"
#include "transport/transport.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/verbs_transport.h"

namespace lochos::verbs {

// An opened port with a protection domain of its own, so that two rails on one device do not share
// fate. Regions keep it alive.
class Device {
 public:
  // Errors: kUnsupported if there is no such device; kSystem.
  static Result<std::shared_ptr<Device>> open(const std::string& name, int port);

  const std::string& name() const { return name_; }
  int port() const { return port_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  const ibv_device_attr& attributes() const { return attributes_; }
  const ibv_port_attr& port_attributes() const { return port_attributes_; }

  // "mlx5_0/1".
  std::string to_string() const { return name_ + "/" + std::to_string(port_); }

 private:
  Device() = default;

  std::string name_;
  int port_ = 1;
  ContextHandle context_;
  DomainHandle domain_;
  ibv_device_attr attributes_{};
  ibv_port_attr port_attributes_{};
};

class VerbsRegion final : public Region {
 public:
  // Errors: kPermission with limit, need and fix when too little memory may be locked; kSystem.
  static Result<std::unique_ptr<VerbsRegion>> open(std::shared_ptr<Device> device,
                                                   std::span<std::byte> memory);

  std::uint32_t local_key() const { return handle_->lkey; }

 private:
  VerbsRegion(std::shared_ptr<Device> device, MemoryHandle handle, std::span<std::byte> memory);

  const std::shared_ptr<Device> device_;
  const MemoryHandle handle_;
};

// What a failed call that pins memory means: the locked-memory limit explained, if that is the
// cause. `need_bytes` is what was to be pinned.
Error pinning_error(int errno_value, std::string_view what, std::uint64_t need_bytes);

// The valid entries of a port's GID table.
std::vector<VerbsGid> list_gids(ibv_context* context, int port);
// For an error message, which is one line: "0 = fe80::1 (RoCE v2, eth0); 1 = …".
std::string gid_table(std::span<const VerbsGid> gids);
// The IP address that a GID of a RoCE port stands for (port 0).
SocketAddress gid_address(const VerbsGid& gid);

int mtu_bytes(ibv_mtu mtu);
// Nothing for a number that is no RDMA MTU.
std::optional<ibv_mtu> mtu_from_bytes(int bytes);

}  // namespace lochos::verbs
