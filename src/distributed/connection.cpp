#include "distributed/connection.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unistd.h>

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <attentive/distributed/peer_error.h>

#include "distributed/device_choice.h"
#include "distributed/process_effects.h"

namespace attentive::distributed {
namespace {

using c10d_internals::Collectives;
using c10d_internals::KeyStore;
using c10d_internals::StoreAddress;

std::atomic<int64_t> joins{0};
std::mutex current_mutex;
std::weak_ptr<Connection> current;

// The prefix distinguishes joins: torchrun's agent serves one store for all its restarts, and a process may
// join again after it has left.
StoreAddress address_of(const Environment& environment) {
  return {environment.master_address, environment.master_port,
          fmt::format("attentive/{}/{}/{}/", environment.restarts,
                      environment.agent_serves ? environment.size : 0, joins.load())};
}

std::string described(int64_t rank, const std::string& host_and_process) {
  return fmt::format("rank {} ({})", rank, host_and_process);
}

std::string this_process() {
  char host[256] = "";
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return fmt::format("host {}, process {}", host[0] != '\0' ? host : "unknown", ::getpid());
}

double seconds(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000;
}

// Whether an error means that a message has not arrived. When one process times out, Gloo closes its
// connections, and the others report that.
bool is_of_messages(const std::string& message) {
  return is_timeout(message) || message.find("onnection closed by peer") != std::string::npos ||
         message.find("onnection reset by peer") != std::string::npos;
}

// A tensor's bytes, so that tensors of every dtype can be sent.
at::Tensor bytes_of(const at::Tensor& tensor) {
  const auto dense = tensor.detach().resolve_conj().resolve_neg().contiguous();
  // A single element counts as contiguous whatever its stride, but view(dtype) insists on stride 1.
  return dense.as_strided({dense.numel()}, {1}).view(at::kByte);
}

// Why the store cannot be reached, and what to do.
std::string complaint(const Environment& environment, std::chrono::milliseconds timeout,
                      const StoreError& error) {
  if (environment.serves())
    return fmt::format(
        "serves the store, but does not reach it at {}: {}; set MASTER_ADDR to the machine of rank 0",
        environment.store(), first_line(error));
  const auto there =
      fmt::format("{} at {}", environment.agent_serves ? "torchrun's store" : "rank 0", environment.store());
  if (error.fault() == Fault::Foreign)
    return fmt::format(
        "has found something else than {}: what listens there answers as no store does; check both variables",
        there);
  const auto missed = fmt::format("has not reached {} within {} s: ", there, seconds(timeout));
  if (error.fault() == Fault::Unreachable)
    return fmt::format("{}{}; start {}, check both variables, or raise GroupOptions::timeout", missed,
                       first_line(error), environment.agent_serves ? "torchrun" : "rank 0");
  return fmt::format(
      "{}what listens there {}, so that it is something else, or has been stopped; check both variables",
      missed, error.fault() == Fault::Silent ? "does not answer" : "closes the connection");
}

std::unique_ptr<KeyStore> open_store(const Environment& environment, std::chrono::milliseconds timeout,
                                     Deadline end) {
  std::string reason;
  try {
    return std::make_unique<KeyStore>(address_of(environment), environment.serves(), end);
  } catch (const StoreError& error) {
    reason = complaint(environment, timeout, error);
  } catch (const std::exception& error) {  // thrown by c10d if this process serves the store
    reason = first_line(error);
    TORCH_CHECK(
        false, "Group::join: rank 0 cannot serve the store at ", environment.store(), ": ",
        reason.find("EADDRINUSE") != std::string::npos ? "the port is taken" : reason,
        "; set MASTER_PORT to a free port, the same for all ranks, and MASTER_ADDR to the machine of rank 0");
  }
  TORCH_CHECK(false, "Group::join: rank ", environment.rank, " of ", environment.size, " ", reason);
}

}  // namespace

std::string first_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

Connection::Connection(const Environment& environment, const at::Device& device,
                       std::chrono::milliseconds timeout)
    : environment_(environment), device_(device) {
  TORCH_CHECK_VALUE(current_connection() == nullptr,
                    "Group::join: this process is in a group already; use that one");
  const SigpipeBlock block;  // c10d's threads inherit it
  const auto end = std::chrono::steady_clock::now() + timeout;
  ++joins;
  store_ = open_store(environment_, timeout, end);
  try {
    meet(timeout, end);
  } catch (const StoreError& error) {
    TORCH_CHECK(false, "Group::join: rank ", environment_.rank, " of ", environment_.size,
                " has lost the store at ", environment_.store(), ": what listens there ", first_line(error),
                "; see what rank 0 has printed");
  }
  store_->set_limit(timeout);
}

void Connection::meet(std::chrono::milliseconds timeout, Deadline end) {
  const int64_t rank = environment_.rank, size = environment_.size;
  const auto same_rank = store_->count(fmt::format("comers/{}", rank));
  TORCH_CHECK_VALUE(same_rank == 1, "Group::join: ", same_rank, " processes of ", environment_.store(),
                    " say RANK=", rank, "; give each process its own, from 0 to ", size - 1);
  store_->set(fmt::format("member/{}", rank),
              fmt::format("{} {} {}", size, place_of(device_), this_process()));
  auto members = await_members(timeout, end);
  detector_ = std::make_unique<FailureDetector>(
      FailureDetector::Place{address_of(environment_), rank, size, environment_.serves(),
                             environment_.agent_serves, environment_.store(), members},
      end);
  try {
    collectives_ = Collectives::connect(
        *store_, {.rank = rank, .size = size, .device = device_, .timeout = timeout, .given_up = [this] {
                    return detector_->known().has_value();
                  }});
  } catch (const std::exception& error) {
    const auto verdict = detector_->ask(first_line(error));
    if (verdict.rank != rank) blame("Group::join", verdict);
    TORCH_CHECK(false, "Group::join: rank ", rank, " of ", size,
                " cannot connect to the others: ", first_line(error),
                "; name the network interface with GLOO_SOCKET_IFNAME",
                device_.is_cuda() ? " and NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO prints what NCCL does" : "");
  }
}

std::vector<std::string> Connection::await_members(std::chrono::milliseconds timeout, Deadline end) {
  std::vector<std::string> members, places;
  std::string missing;
  for (int64_t rank = 0; rank < environment_.size; ++rank) {
    const auto key = fmt::format("member/{}", rank);
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (!store_->find(key) && (left.count() <= 0 || !store_->wait(key, left))) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      continue;
    }
    const auto text = *store_->find(key);
    const auto space = text.find(' ');
    TORCH_CHECK_VALUE(text.substr(0, space) == std::to_string(environment_.size), "Group::join: rank ",
                      environment_.rank, " says WORLD_SIZE=", environment_.size, ", but rank ", rank,
                      " says WORLD_SIZE=", text.substr(0, space), "; give all processes the same");
    const auto end_of_place = text.find(' ', space + 1);
    places.push_back(text.substr(space + 1, end_of_place - space - 1));
    members.push_back(described(rank, text.substr(end_of_place + 1)));
  }
  TORCH_CHECK(missing.empty(), "Group::join: rank ", environment_.rank, " of ", environment_.size,
              " has waited ", seconds(timeout), " s in vain for rank ", missing, " at ", environment_.store(),
              "; start as many processes as WORLD_SIZE says, or raise GroupOptions::timeout");
  check_places(places, members);
  return members;
}

Connection::~Connection() {
  const SigpipeBlock block;
  detector_.reset();  // tells the others that this process leaves, while its connections are still open
  collectives_.reset();
  store_.reset();
}

void Connection::call(const char* caller, const std::function<void(Collectives&)>& work) {
  const SigpipeBlock block;
  if (const auto verdict = detector_->known()) blame(caller, *verdict);
  detector_->begin_call();
  try {
    work(*collectives_);
  } catch (const std::exception& error) {
    const auto verdict = detector_->ask(first_line(error));
    if (verdict.rank != environment_.rank) blame(caller, verdict);
    abandon();
    if (!is_of_messages(first_line(error))) throw;
    throw PeerError(fmt::format("{}: no process is missing, but what this call waits for has not come: the "
                                "processes make calls or backward "
                                "passes in different orders, or GroupOptions::timeout is too short",
                                caller),
                    -1);
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

void Connection::fail(const std::string& reason) {
  if (detector_ == nullptr) return;
  detector_->blame_self(reason);
  abandon();
}

void Connection::blame(const char* caller, const Blame& verdict) {
  abandon();
  throw PeerError(fmt::format("{}: {}", caller, verdict.line), verdict.rank);
}

void Connection::abandon() {
  detector_->spread();
  if (collectives_ == nullptr) return;
  exit_at_once();
  static_cast<void>(collectives_.release());
}

std::shared_ptr<Connection> current_connection() {
  const std::lock_guard lock(current_mutex);
  return current.lock();
}

void set_current_connection(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(current_mutex);
  current = connection;
}

void keep_for_report(std::shared_ptr<Connection> connection) {
  exit_at_once();
  // Leaked on purpose: its threads may still wait for processes that are missing.
  static_cast<void>(new std::shared_ptr<Connection>(std::move(connection)));
}

}  // namespace attentive::distributed
