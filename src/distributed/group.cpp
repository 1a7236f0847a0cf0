#include <exception>

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <attentive/distributed/data_parallel.h>
#include <attentive/distributed/group.h>

#include "distributed/connection.h"
#include "distributed/device_choice.h"
#include "distributed/exit_at_once.h"

namespace attentive {
namespace {

void check_tensor(const char* who, const Group& group, const at::Tensor& tensor) {
  const auto device = group.device();
  const std::string where = device.is_cpu() ? "" : " or on " + device.str();
  TORCH_CHECK_VALUE(tensor.defined() && tensor.layout() == at::kStrided, who,
                    ": expected a dense tensor on the CPU", where, ", got ", tensor.toString());
  TORCH_CHECK_VALUE(tensor.is_cpu() || tensor.device() == device, who, ": expected a dense tensor on the CPU",
                    where, ", got one on ", tensor.device());
}

}  // namespace

std::shared_ptr<distributed::Connection> distributed::connection_of(const Group& group) {
  return group.connection_;
}

std::shared_ptr<Group> Group::join(const GroupOptions& options) {
  TORCH_CHECK_VALUE(options.timeout.count() > 0, "Group::join: expected a positive timeout, got ",
                    options.timeout.count(), " ms");
  distributed::allow_exit_at_once(options.exit_at_once);
  const auto environment = distributed::read_environment();
  // Nothing asks for CUDA in a group on the CPU.
  const auto device = distributed::choose_device(
      options.device, environment,
      options.device.is_cpu() ? distributed::Devices{} : distributed::devices_here());
  auto connection = environment.alone()
                        ? std::make_shared<distributed::Connection>(environment, device)
                        : std::make_shared<distributed::Connection>(environment, device, options.timeout);
  if (!environment.alone()) distributed::set_current_connection(connection);
  return std::shared_ptr<Group>(new Group(std::move(connection)));
}

Group::Group(std::shared_ptr<distributed::Connection> connection) : connection_(std::move(connection)) {}

Group::~Group() {
  if (std::uncaught_exceptions() > 0 && size() > 1) distributed::keep_for_report(std::move(connection_));
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
  check_tensor("Group::gather", *this, tensor);
  if (size() == 1) return {tensor.detach().clone()};
  return connection_->gather("Group::gather", tensor);
}

void Group::broadcast(const at::Tensor& tensor, int64_t root) {
  check_tensor("Group::broadcast", *this, tensor);
  TORCH_CHECK_VALUE(root >= 0 && root < size(), "Group::broadcast: expected a root from 0 to ", size() - 1,
                    ", got ", root);
  if (size() > 1) connection_->broadcast("Group::broadcast", tensor, root);
}

void Group::sum(const at::Tensor& tensor) {
  check_tensor("Group::sum", *this, tensor);
  TORCH_CHECK_VALUE(tensor.is_contiguous(), "Group::sum: expected a contiguous tensor, got strides ",
                    tensor.strides());
  if (size() == 1 || tensor.numel() == 0) return;
  connection_->call("Group::sum", [&](auto& collectives) { collectives.sum(tensor.detach()); });
}

void Group::barrier() {
  if (size() > 1) connection_->gather("Group::barrier", at::zeros({1}, at::kByte));
}

std::unique_ptr<GradientAverage> Group::average_gradients(torch::nn::Module& model) {
  return std::make_unique<DataParallel>(model, shared_from_this());
}

}  // namespace attentive
