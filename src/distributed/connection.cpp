#include "distributed/connection.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <unistd.h>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>

#include "distributed/c10d_backends.h"
#include "distributed/failures.h"

namespace attentive::distributed {
namespace {

using c10d_internals::Collectives;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::atomic<int64_t> joins{0};

std::string this_process() {
  char host[256] = "";
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return fmt::format("host {}, process {}", host[0] != '\0' ? host : "unknown", ::getpid());
}

// A tensor's bytes, so that tensors of every dtype can be sent.
at::Tensor bytes_of(const at::Tensor& tensor) {
  const auto dense = tensor.detach().resolve_conj().resolve_neg().contiguous();
  // A single element counts as contiguous whatever its stride, but view(dtype) insists on stride 1.
  return dense.as_strided({dense.numel()}, {1}).view(at::kByte);
}

enum class Stage { Reach, Register, Connect };

// Joins the other processes.
class Meeting {
 public:
  Meeting(Environment environment, at::Device device, milliseconds timeout)
      : environment_(std::move(environment)), device_(device), timeout_(timeout) {}

  // Meets in a thread of its own, which is left behind if it does not end in time: c10d waits without limit
  // for a server that does not answer.
  static std::unique_ptr<Collectives> limited(std::shared_ptr<Meeting> meeting) {
    // For the error of a thread that has noticed the deadline itself.
    const auto grace = std::max(milliseconds(500), meeting->timeout_ / 100);
    // c10d would print warnings, with stack traces, of what the error of Group::join says.
    const auto loud = c10::make_scope_exit(
        [before = std::exchange(FLAGS_caffe2_log_level, 3)] { FLAGS_caffe2_log_level = before; });
    std::packaged_task<std::unique_ptr<Collectives>()> task([meeting] { return meeting->meet(); });
    auto joined = task.get_future();
    std::thread(std::move(task)).detach();
    if (joined.wait_until(meeting->end_) != std::future_status::ready) {
      const auto stage = meeting->stage_.load();
      if (stage == Stage::Reach || joined.wait_for(grace) != std::future_status::ready) {
        exit_at_once();
        if (stage == Stage::Reach) meeting->fail_unreached("no store has answered there");
        if (stage == Stage::Register) meeting->fail_lost("it does not answer");
        meeting->fail_unconnected("timed out");
      }
    }
    return joined.get();
  }

 private:
  std::unique_ptr<Collectives> meet() {
    const auto store = open_store();
    stage_ = Stage::Register;
    std::vector<std::string> places, members;
    try {
      register_process(*store);
      await_members(*store, places, members);
    } catch (const c10::DistError& error) {
      fail_lost(first_line(error));
    }
    check_places(places, members);
    stage_ = Stage::Connect;
    try {
      auto collectives = Collectives::connect(
          store,
          {.rank = environment_.rank, .size = environment_.size, .device = device_, .timeout = timeout_});
      // Nobody leaves, with the store perhaps, before all have connected.
      collectives->gather(at::zeros({1}, at::kByte));
      return collectives;
    } catch (const std::exception& error) {
      fail_unconnected(first_line(error));
    }
  }

  c10::intrusive_ptr<c10d::Store> open_store() const {
    // The prefix distinguishes joins: torchrun's agent serves one store for all its restarts, and a process
    // may join again after it has left.
    const auto prefix = fmt::format("attentive/{}/{}/{}", environment_.restarts,
                                    environment_.agent_serves ? environment_.size : 0, joins.load());
    try {
      return c10d_internals::open_store(environment_.master_address, environment_.master_port, prefix,
                                        environment_.serves(), timeout_);
    } catch (const std::exception& error) {
      const auto reason = first_line(error);
      TORCH_CHECK(!environment_.serves(), "Group::join: rank 0 cannot serve the store at ",
                  environment_.store(), ": ",
                  reason.find("EADDRINUSE") != std::string::npos ? "the port is taken" : reason,
                  "; set MASTER_PORT to a free port, the same for all ranks, and MASTER_ADDR to the machine "
                  "of rank 0");
      fail_unreached(reason);
    }
  }

  void register_process(c10d::Store& store) const {
    const auto same_rank = store.add(fmt::format("comers/{}", environment_.rank), 1);
    TORCH_CHECK_VALUE(same_rank == 1, "Group::join: ", same_rank, " processes of ", environment_.store(),
                      " say RANK=", environment_.rank, "; give each process its own, from 0 to ",
                      environment_.size - 1);
    store.set(fmt::format("member/{}", environment_.rank),
              fmt::format("{} {} {}", environment_.size, place_of(device_), this_process()));
  }

  void await_members(c10d::Store& store, std::vector<std::string>& places,
                     std::vector<std::string>& members) const {
    std::string missing;
    for (int64_t rank = 0; rank < environment_.size; ++rank) {
      const auto key = fmt::format("member/{}", rank);
      try {
        const auto left = std::chrono::duration_cast<milliseconds>(end_ - Clock::now());
        store.wait({key}, std::max(left, milliseconds(1)));  // 0 would mean no limit
      } catch (const c10::DistStoreError&) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
        continue;
      }
      const auto text = store.get_to_str(key);
      const auto space = text.find(' '), end_of_place = text.find(' ', space + 1);
      TORCH_CHECK_VALUE(text.substr(0, space) == std::to_string(environment_.size), "Group::join: rank ",
                        environment_.rank, " says WORLD_SIZE=", environment_.size, ", but rank ", rank,
                        " says WORLD_SIZE=", text.substr(0, space), "; give all processes the same");
      places.push_back(text.substr(space + 1, end_of_place - space - 1));
      members.push_back(fmt::format("rank {} ({})", rank, text.substr(end_of_place + 1)));
    }
    TORCH_CHECK(missing.empty(), self(), " has waited ", seconds(), " s in vain for rank ", missing, " at ",
                environment_.store(),
                "; start as many processes as WORLD_SIZE says, or raise GroupOptions::timeout");
  }

  [[noreturn]] void fail_unreached(const std::string& reason) const {
    const char* server = environment_.agent_serves ? "torchrun" : "rank 0";
    TORCH_CHECK(false, self(), " has not reached ", server, environment_.agent_serves ? "'s store" : "",
                " at ", environment_.store(), " within ", seconds(), " s: ", reason, "; start ", server,
                ", check both variables, or raise GroupOptions::timeout");
  }

  [[noreturn]] void fail_lost(const std::string& reason) const {
    TORCH_CHECK(false, self(), " has lost the store at ", environment_.store(), ": ", reason,
                "; see what rank 0 has printed, or check both variables");
  }

  [[noreturn]] void fail_unconnected(const std::string& reason) const {
    TORCH_CHECK(false, self(), " cannot connect to the others: ", reason,
                "; name the network interface with GLOO_SOCKET_IFNAME",
                device_.is_cuda() ? " and NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO prints what NCCL does" : "");
  }

  std::string self() const {
    return fmt::format("Group::join: rank {} of {}", environment_.rank, environment_.size);
  }
  double seconds() const { return static_cast<double>(timeout_.count()) / 1000; }

  Environment environment_;
  at::Device device_;
  milliseconds timeout_;
  Clock::time_point end_ = Clock::now() + timeout_;
  std::atomic<Stage> stage_{Stage::Reach};
};

}  // namespace

Connection::Connection(const Environment& environment, const at::Device& device, milliseconds timeout)
    : environment_(environment), device_(device) {
  TORCH_CHECK_VALUE(current_connection().expired(),
                    "Group::join: this process is in a group already; use that one");
  const SigpipeBlock block;  // c10d's threads inherit it
  ++joins;
  collectives_ = Meeting::limited(std::make_shared<Meeting>(environment_, device_, timeout));
  if (device_.is_cuda()) c10::impl::getDeviceGuardImpl(at::kCUDA)->setDevice(device_);
}

Connection::~Connection() {
  const SigpipeBlock block;
  collectives_.reset();
}

void Connection::call(const char* caller, const std::function<void(Collectives&)>& work) {
  const SigpipeBlock block;
  if (collectives_ == nullptr) throw PeerError(fmt::format("{}: {}", caller, reason_));
  try {
    work(*collectives_);
  } catch (const PeerError&) {  // of a call in the backward pass that this one runs
    throw;
  } catch (const c10d_internals::CallError& error) {
    abandon(error.what());
    throw PeerError(fmt::format("{}: {}", caller, reason_));
  } catch (const std::exception& error) {
    abandon("this process has ended the group: " + first_line(error));
    throw;
  }
}

std::vector<at::Tensor> Connection::gather(const char* caller, const at::Tensor& tensor) {
  if (tensor.numel() == 0)
    return std::vector<at::Tensor>(static_cast<size_t>(environment_.size), tensor.detach().clone());
  std::vector<at::Tensor> all;
  call(caller, [&](Collectives& collectives) {
    for (const auto& bytes : collectives.gather(bytes_of(tensor))) {
      all.push_back(bytes.view(tensor.scalar_type()).view(tensor.sizes()));
    }
  });
  return all;
}

void Connection::broadcast(const char* caller, const at::Tensor& tensor, int64_t root) {
  if (tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const auto bytes = bytes_of(tensor);
  call(caller, [&](Collectives& collectives) { collectives.broadcast(bytes, root); });
  const auto received = bytes.view(tensor.scalar_type()).view(tensor.sizes());
  if (environment_.rank != root && !received.is_alias_of(tensor)) tensor.detach().copy_(received);
}

std::vector<std::string> Connection::gather_texts(const char* caller, std::string text,
                                                  const std::vector<int64_t>& lengths) {
  const auto longest = *std::max_element(lengths.begin(), lengths.end());
  text.resize(static_cast<size_t>(longest));
  std::vector<std::string> texts;
  for (const auto& bytes : gather(caller, at::from_blob(text.data(), {longest}, at::kByte))) {
    texts.emplace_back(static_cast<const char*>(bytes.const_data_ptr()),
                       static_cast<size_t>(lengths[texts.size()]));
  }
  return texts;
}

void Connection::abandon(const std::string& reason) {
  if (collectives_ == nullptr) return;
  reason_ = reason;
  exit_at_once();
  static_cast<void>(collectives_.release());
}

std::weak_ptr<Connection>& current_connection() {
  static std::weak_ptr<Connection> connection;
  return connection;
}

}  // namespace attentive::distributed
