#include "transport/fabric/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

namespace lochos::fabric {
namespace {

constexpr std::uint32_t kApiVersion = FI_VERSION(1, 17);
constexpr std::uint64_t kAccess =
    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr int kKeyAttempts = 8;  // a random 64-bit key is taken once in an eternity

InfoHandle make_hints(const FabricOptions& options, bool shared_receives) {
  InfoHandle hints(fi_allocinfo());
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_MSG;
  if (shared_receives) hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  hints->fabric_attr->prov_name = strdup(options.provider.c_str());
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->tx_attr->msg_order = FI_ORDER_SAW | FI_ORDER_SAS | FI_ORDER_WAW;
  return hints;
}

std::string list_providers() {
  fi_info* found = nullptr;
  InfoHandle hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_MSG;
  if (fi_getinfo(kApiVersion, nullptr, nullptr, 0, hints.get(), &found) != 0) return "none";
  const InfoHandle owner(found);
  std::set<std::string> names;
  for (const fi_info* info = found; info != nullptr; info = info->next) {
    names.insert(info->fabric_attr->prov_name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void set_address(void*& field, std::size_t& length, const SocketAddress& address) {
  free(field);
  length = address.length();
  field = malloc(length);
  std::memcpy(field, address.get(), length);
}

}  // namespace

Error fabric_error(std::int64_t code, std::string_view what) {
  const int value = static_cast<int>(code < 0 ? -code : code);
  if (value < FI_ERRNO_OFFSET) return system_error(value, what);
  return Error(Errc::kSystem, fmt::format("{}: {}", what, fi_strerror(value)));
}

FabricRegion::FabricRegion(MemoryHandle handle, std::span<std::byte> memory,
                           std::uint64_t remote_base)
    : Region(memory, remote_base, fi_mr_key(handle.get())), handle_(std::move(handle)) {}

Result<std::unique_ptr<Device>> Device::open(const FabricOptions& options) {
  std::unique_ptr<Device> device(new Device);
  fi_info* found = nullptr;
  for (const bool shared : {true, false}) {
    const InfoHandle hints = make_hints(options, shared);
    if (fi_getinfo(kApiVersion, nullptr, nullptr, 0, hints.get(), &found) == 0) {
      device->shares_receives_ = shared;
      break;
    }
  }
  if (found == nullptr) {
    return fail(Error(Errc::kUnsupported,
                      fmt::format("libfabric has no provider '{}' with message endpoints and "
                                  "remote memory access",
                                  options.provider))
                    .with_fix(fmt::format("use one of: {}", list_providers())));
  }
  device->info_.reset(found);
  device->provider_ = found->fabric_attr->prov_name;
  device->mr_mode_ = static_cast<std::uint64_t>(found->domain_attr->mr_mode);

  fid_fabric* fabric = nullptr;
  int code = fi_fabric(found->fabric_attr, &fabric, nullptr);
  if (code != 0) return fail(fabric_error(code, "open a libfabric fabric"));
  device->fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  code = fi_domain(fabric, found, &domain, nullptr);
  if (code != 0) return fail(fabric_error(code, "open a libfabric domain"));
  device->domain_.reset(domain);
  return device;
}

Result<std::unique_ptr<FabricRegion>> Device::register_memory(std::span<std::byte> memory) {
  const std::size_t key_bytes = info_->domain_attr->mr_key_size;
  const std::uint64_t mask = key_bytes >= 8 ? ~std::uint64_t{0} : (1ULL << (8 * key_bytes)) - 1;
  fid_mr* region = nullptr;
  int code = 0;
  for (int attempt = 0; attempt < kKeyAttempts; ++attempt) {
    code = fi_mr_reg(domain_.get(), memory.data(), memory.size(), kAccess, 0, keys_() & mask, 0,
                     &region, nullptr);
    if (code != -FI_ENOKEY) break;
  }
  if (code != 0) {
    return fail(fabric_error(code, fmt::format("register {} bytes of memory", memory.size())));
  }
  const bool by_address = (mr_mode_ & FI_MR_VIRT_ADDR) != 0;
  return std::make_unique<FabricRegion>(
      MemoryHandle(region), memory,
      by_address ? reinterpret_cast<std::uint64_t>(memory.data()) : 0);
}

Result<EventQueueHandle> Device::open_event_queue() const {
  fi_eq_attr attributes{};
  attributes.wait_obj = FI_WAIT_FD;
  fid_eq* queue = nullptr;
  const int code = fi_eq_open(fabric_.get(), &attributes, &queue, nullptr);
  if (code != 0) return fail(fabric_error(code, "open a libfabric event queue"));
  return EventQueueHandle(queue);
}

Result<CompletionQueueHandle> Device::open_completion_queue(std::size_t size) const {
  fi_cq_attr attributes{};
  attributes.size = size;
  attributes.format = FI_CQ_FORMAT_DATA;
  // The provider `tcp` reads faster from a queue that has a list of descriptors than from one that
  // has an epoll set of its own: 6.9 instead of 7.6 us for half a round trip of 64 bytes.
  attributes.wait_obj = uses_tcp_sockets() ? FI_WAIT_POLLFD : FI_WAIT_FD;
  fid_cq* queue = nullptr;
  const int code = fi_cq_open(domain_.get(), &attributes, &queue, nullptr);
  if (code != 0) return fail(fabric_error(code, "open a libfabric completion queue"));
  return CompletionQueueHandle(queue);
}

void Device::wait_descriptors(fid_cq& queue, std::vector<pollfd>& descriptors) const {
  descriptors.assign(1, {.fd = -1, .events = POLLIN, .revents = 0});
  if (!uses_tcp_sockets()) {
    fi_control(&queue.fid, FI_GETWAIT, &descriptors[0].fd);
    return;
  }
  fi_wait_pollfd list{};
  do {
    descriptors.resize(std::max<std::size_t>(descriptors.size(), list.nfds));
    list.nfds = descriptors.size();
    list.fd = descriptors.data();
  } while (fi_control(&queue.fid, FI_GETWAIT, &list) == -FI_ETOOSMALL);
  descriptors.resize(list.nfds);
  // The first only tells other threads that the list has changed.
  if (!descriptors.empty()) descriptors.erase(descriptors.begin());
}

Result<int> Device::wait_fd(fid_eq& queue) {
  int fd = -1;
  const int code = fi_control(&queue.fid, FI_GETWAIT, &fd);
  if (code != 0) return fail(fabric_error(code, "get the descriptor of a libfabric queue"));
  return fd;
}

InfoHandle Device::describe_endpoint(const SocketAddress& local,
                                     const SocketAddress* remote) const {
  InfoHandle info(fi_dupinfo(info_.get()));
  info->next = nullptr;
  const int family = remote != nullptr ? remote->family() : local.family();
  info->addr_format = family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
  if (remote != nullptr) set_address(info->dest_addr, info->dest_addrlen, *remote);
  // The provider binds to the source address it is given; none lets the route decide.
  free(info->src_addr);
  info->src_addr = nullptr;
  info->src_addrlen = 0;
  if (remote == nullptr || (!local.is_unspecified() && local.family() == family)) {
    set_address(info->src_addr, info->src_addrlen, local);
  }
  return info;
}

}  // namespace lochos::fabric
