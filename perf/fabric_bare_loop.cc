// The bare libfabric loop that `lochos perf bw --transport tcp` is compared with: one process pair
// over loopback, FI_EP_MSG, fi_writedata, a window of outstanding writes, nothing else. What it
// reaches is what provider `tcp` can do when nobody stands between it and the user.
//
//   fabric_bare_loop [SIZE [ITERATIONS [WINDOW [poll|block]]]]
//
// Prints one line of JSON: {"size": …, "iterations": …, "window": …, "MBps": …}, MB = 2^20 bytes.
// The clock stops when the receiver has said that every byte is there.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Parameters {
  std::size_t size = 1 << 20;
  std::size_t iterations = 5000;
  std::size_t window = 16;
  bool block = true;
};

// What the receiver tells the sender through a pipe before the sender connects.
struct Target {
  sockaddr_in address;
  std::uint64_t memory;
  std::uint64_t key;
};

[[noreturn]] void die(const char* what, long status) {
  std::fprintf(stderr, "fabric_bare_loop: %s: %s\n", what,
               fi_strerror(static_cast<int>(status < 0 ? -status : status)));
  std::_Exit(1);
}

void must(long status, const char* what) {
  if (status != 0) die(what, status);
}

// Everything one side needs; process exit gives it back.
struct Side {
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_eq* eq = nullptr;
  fid_cq* cq = nullptr;
  fid_ep* ep = nullptr;
  fid_mr* mr = nullptr;
  std::vector<char> memory;
};

fi_info* tcp_info(const char* node, const char* service, std::uint64_t flags) {
  fi_info* hints = fi_allocinfo();
  hints->ep_attr->type = FI_EP_MSG;
  hints->caps = FI_MSG | FI_RMA;
  hints->addr_format = FI_SOCKADDR_IN;
  hints->fabric_attr->prov_name = strdup("tcp");
  fi_info* info = nullptr;
  must(fi_getinfo(FI_VERSION(1, 15), node, service, flags, hints, &info), "fi_getinfo");
  fi_freeinfo(hints);
  return info;
}

void open_domain(Side& side) {
  must(fi_fabric(side.info->fabric_attr, &side.fabric, nullptr), "fi_fabric");
  fi_eq_attr eq_attr{};
  eq_attr.wait_obj = FI_WAIT_UNSPEC;
  must(fi_eq_open(side.fabric, &eq_attr, &side.eq, nullptr), "fi_eq_open");
}

void open_endpoint(Side& side, const Parameters& parameters) {
  must(fi_domain(side.fabric, side.info, &side.domain, nullptr), "fi_domain");
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_DATA;
  cq_attr.size = 512;
  cq_attr.wait_obj = FI_WAIT_UNSPEC;
  must(fi_cq_open(side.domain, &cq_attr, &side.cq, nullptr), "fi_cq_open");
  must(fi_endpoint(side.domain, side.info, &side.ep, nullptr), "fi_endpoint");
  must(fi_ep_bind(side.ep, &side.eq->fid, 0), "fi_ep_bind(eq)");
  must(fi_ep_bind(side.ep, &side.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind(cq)");
  must(fi_enable(side.ep), "fi_enable");
  side.memory.assign(parameters.size, 'x');
  must(fi_mr_reg(side.domain, side.memory.data(), side.memory.size(), FI_WRITE | FI_REMOTE_WRITE, 0,
                 1, 0, &side.mr, nullptr),
       "fi_mr_reg");
}

fi_eq_cm_entry next_event(Side& side, std::uint32_t wanted) {
  std::uint32_t event = 0;
  fi_eq_cm_entry entry{};
  const ssize_t got = fi_eq_sread(side.eq, &event, &entry, sizeof entry, 5000, 0);
  if (got < 0) die("fi_eq_sread", got);
  if (event != wanted) die("unexpected connection event", FI_EOTHER);
  return entry;
}

// Reads completions until at least one is there; returns how many.
std::size_t completions(Side& side, const Parameters& parameters) {
  std::array<fi_cq_data_entry, 64> entries;
  for (;;) {
    const ssize_t got = parameters.block
                            ? fi_cq_sread(side.cq, entries.data(), entries.size(), nullptr, -1)
                            : fi_cq_read(side.cq, entries.data(), entries.size());
    if (got > 0) return static_cast<std::size_t>(got);
    if (got != -FI_EAGAIN) die("fi_cq_read", got);
  }
}

int receive(const Parameters& parameters, int tell) {
  Side side;
  side.info = tcp_info("127.0.0.1", "0", FI_SOURCE);
  open_domain(side);
  fid_pep* listener = nullptr;
  must(fi_passive_ep(side.fabric, side.info, &listener, nullptr), "fi_passive_ep");
  must(fi_pep_bind(listener, &side.eq->fid, 0), "fi_pep_bind");
  must(fi_listen(listener), "fi_listen");
  Target target{};
  std::size_t length = sizeof target.address;
  must(fi_getname(&listener->fid, &target.address, &length), "fi_getname");
  // The memory exists before the connection; its key is chosen, not assigned (mr_mode is empty).
  target.key = 1;
  if (write(tell, &target, sizeof target) != sizeof target) die("pipe", errno);

  side.info = next_event(side, FI_CONNREQ).info;
  open_endpoint(side, parameters);
  must(fi_accept(side.ep, nullptr, 0), "fi_accept");
  next_event(side, FI_CONNECTED);
  for (std::size_t arrived = 0; arrived < parameters.iterations;)
    arrived += completions(side, parameters);
  const char done = 1;
  if (write(tell, &done, 1) != 1) die("pipe", errno);
  fi_shutdown(side.ep, 0);
  return 0;
}

int send(const Parameters& parameters, int hear) {
  Target target{};
  if (read(hear, &target, sizeof target) != sizeof target) die("pipe", EIO);
  Side side;
  side.info = tcp_info("127.0.0.1", std::to_string(ntohs(target.address.sin_port)).c_str(), 0);
  open_domain(side);
  open_endpoint(side, parameters);
  must(fi_connect(side.ep, &target.address, nullptr, 0), "fi_connect");
  next_event(side, FI_CONNECTED);

  const auto start = std::chrono::steady_clock::now();
  std::size_t posted = 0;
  std::size_t completed = 0;
  while (completed < parameters.iterations) {
    while (posted < parameters.iterations && posted - completed < parameters.window) {
      const ssize_t status = fi_writedata(side.ep, side.memory.data(), parameters.size, nullptr, 7,
                                          0, target.memory, target.key, nullptr);
      if (status == -FI_EAGAIN) break;
      must(status, "fi_writedata");
      ++posted;
    }
    completed += completions(side, parameters);
  }
  char done = 0;
  if (read(hear, &done, 1) != 1) die("receiver died", EIO);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const double bytes = static_cast<double>(parameters.size * parameters.iterations);
  std::printf("{\"size\": %zu, \"iterations\": %zu, \"window\": %zu, \"MBps\": %.1f}\n",
              parameters.size, parameters.iterations, parameters.window,
              bytes / elapsed.count() / (1 << 20));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Parameters parameters;
  if (argc > 1) parameters.size = std::strtoull(argv[1], nullptr, 10);
  if (argc > 2) parameters.iterations = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) parameters.window = std::strtoull(argv[3], nullptr, 10);
  if (argc > 4) parameters.block = std::strcmp(argv[4], "poll") != 0;
  int pipe_fds[2];
  if (pipe(pipe_fds) != 0) die("pipe", errno);
  const pid_t receiver = fork();
  if (receiver < 0) die("fork", errno);
  if (receiver == 0) {
    close(pipe_fds[0]);
    std::_Exit(receive(parameters, pipe_fds[1]));
  }
  close(pipe_fds[1]);
  const int status = send(parameters, pipe_fds[0]);
  int receiver_status = 0;
  waitpid(receiver, &receiver_status, 0);
  return status != 0 || receiver_status != 0 ? 1 : 0;
}
