#include <algorithm>
#include <array>
#include <exception>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/distributed/data_parallel.h>
#include <attentive/distributed/group.h>

#include "core/check.h"
#include "distributed/connection.h"
#include "distributed/environment.h"
#include "distributed/failures.h"
#include "distributed/same_call.h"

namespace attentive {
namespace {

// Checks a tensor and returns a description of what must be the same in all processes.
std::string checked(const char* caller, const Group& group, const at::Tensor& tensor) {
  const auto device = group.device();
  const std::string where = device.is_cpu() ? "" : " or on " + device.str();
  TORCH_CHECK_VALUE(
      tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_nested(),
      caller, ": expected a dense tensor on the CPU", where, ", got ",
      tensor.defined() ? tensor.toString() : "an undefined one");
  TORCH_CHECK_VALUE(tensor.is_cpu() || tensor.device() == device, caller,
                    ": expected a dense tensor on the CPU", where, ", got one on ", tensor.device());
  return fmt::format("{} {}{}", c10::toString(tensor.scalar_type()), shape_string(tensor.sizes()),
                     tensor.is_cpu() ? "" : " on the group's device");
}

// Whether no two elements share memory. Exact for every view made by slices, transposes and reshapes, as its
// dimensions nest in memory.
bool elements_are_apart(const at::Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) > 1) dims.emplace_back(tensor.stride(i), tensor.size(i));
  }
  std::sort(dims.begin(), dims.end());
  int64_t last = 0;  // the offset of the last element of the dimensions so far
  return std::all_of(dims.begin(), dims.end(), [&](const auto& dim) {
    const auto [stride, size] = dim;
    const bool apart = stride > last;
    last += stride * (size - 1);
    return apart;
  });
}

std::string checked_to_overwrite(const char* caller, const Group& group, const at::Tensor& tensor) {
  auto text = checked(caller, group, tensor);
  TORCH_CHECK_VALUE(elements_are_apart(tensor), caller,
                    ": expected a tensor whose elements do not share memory, got shape ",
                    shape_string(tensor.sizes()), " with strides ", shape_string(tensor.strides()));
  return text;
}

// Only the dtypes that both Gloo and NCCL can add are allowed.
void check_sum_dtype(const char* caller, at::ScalarType dtype) {
  constexpr std::array kAdded = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,
                                 at::kLong,   at::kInt,   at::kChar, at::kByte};
  TORCH_CHECK_VALUE(std::find(kAdded.begin(), kAdded.end(), dtype) != kAdded.end(), caller,
                    ": expected Double, Float, Half, BFloat16, Long, Int, Char or Byte, got ",
                    c10::toString(dtype));
}

}  // namespace

std::shared_ptr<distributed::Connection> distributed::connection_of(const Group& group) {
  return group.connection_;
}

std::shared_ptr<Group> Group::join(const GroupOptions& options) {
  TORCH_CHECK_VALUE(options.timeout.count() > 0, "Group::join: expected a positive timeout, got ",
                    options.timeout.count(), " ms");
  const auto environment = distributed::read_environment();
  // A group on the CPU must not initialise CUDA.
  const auto device = distributed::choose_device(
      options.device, environment,
      options.device.is_cpu() ? distributed::Devices{} : distributed::devices_here());
  distributed::allow_exit_at_once(options.exit_at_once);
  auto connection = environment.alone()
                        ? std::make_shared<distributed::Connection>(environment, device)
                        : std::make_shared<distributed::Connection>(environment, device, options.timeout);
  if (!environment.alone()) distributed::current_connection() = connection;
  return std::shared_ptr<Group>(new Group(std::move(connection)));
}

Group::Group(std::shared_ptr<distributed::Connection> connection) : connection_(std::move(connection)) {}

Group::~Group() {
  if (std::uncaught_exceptions() > 0) connection_->abandon("this process has left the group");
}

int64_t Group::rank() const {
  return connection_->environment().rank;
}

int64_t Group::size() const {
  return connection_->environment().size;
}

int64_t Group::local_rank() const {
  return connection_->environment().local_rank;
}

at::Device Group::device() const {
  return connection_->device();
}

std::vector<at::Tensor> Group::gather(const at::Tensor& tensor) {
  constexpr const char* kWho = "Group::gather";
  distributed::begin_call(*connection_, kWho, "tensors", [&] { return checked(kWho, *this, tensor); });
  if (size() == 1) return {tensor.detach().clone()};
  return connection_->gather(kWho, tensor);
}

void Group::broadcast(const at::Tensor& tensor, int64_t root) {
  constexpr const char* kWho = "Group::broadcast";
  distributed::begin_call(*connection_, kWho, "tensors and roots", [&] {
    TORCH_CHECK_VALUE(root >= 0 && root < size(), kWho, ": expected a root from 0 to ", size() - 1, ", got ",
                      root);
    return fmt::format("{} of root {}", checked_to_overwrite(kWho, *this, tensor), root);
  });
  if (size() > 1) connection_->broadcast(kWho, tensor, root);
}

void Group::sum(const at::Tensor& tensor) {
  constexpr const char* kWho = "Group::sum";
  distributed::begin_call(*connection_, kWho, "tensors", [&] {
    auto text = checked_to_overwrite(kWho, *this, tensor);
    check_sum_dtype(kWho, tensor.scalar_type());
    return text;
  });
  if (size() == 1 || tensor.numel() == 0) return;
  const auto sums = tensor.detach().resolve_neg().contiguous();
  connection_->call(kWho, [&](auto& collectives) { collectives.sum(sums); });
  if (!sums.is_alias_of(tensor)) tensor.detach().copy_(sums);
}

void Group::barrier() {
  distributed::begin_call(*connection_, "Group::barrier", "calls", [] { return std::string(); });
}

std::unique_ptr<GradientAverage> Group::average_gradients(torch::nn::Module& model) {
  return std::make_unique<DataParallel>(model, shared_from_this());
}

}  // namespace attentive
