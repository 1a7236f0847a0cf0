#include "modules/low_rank_adapter.h"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include <attentive/modules/module.h>

#include "core/normal_tensors.h"
#include "functional/adapters.h"
#include "modules/first_weights.h"

namespace attentive {
namespace {

at::Tensor first_a(const LowRankShape& shape, const at::TensorOptions& options) {
  auto a = at::empty({shape.rank, shape.features}, options.device(at::kCPU));
  if (draws_first_weights()) torch::nn::init::kaiming_uniform_(a, std::sqrt(5));
  return a.to(options.device());
}

}  // namespace

LowRankAdapterImpl::LowRankAdapterImpl(const LowRankShape& shape, const at::Tensor& like)
    : low_rank_(std::make_shared<LowRank>()) {
  const auto type = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto options = at::TensorOptions(type).device(like.device());
  at::Tensor a, b, magnitude;
  {
    const NormalTensorsGuard kept;
    a = first_a(shape, options);
    b = at::zeros({shape.outputs, shape.rank}, options);
    if (shape.magnitude) magnitude = at::zeros({shape.outputs}, options);
  }
  low_rank_->a = register_parameter("A", a);
  low_rank_->b = register_parameter("B", b);
  if (shape.magnitude) low_rank_->magnitude = register_parameter("magnitude", magnitude);
  low_rank_->scale = shape.scale;
  low_rank_->dropout = shape.dropout;
}

LowRankAdapterImpl::~LowRankAdapterImpl() {
  remove_adapter(*low_rank_);
}

void LowRankAdapterImpl::train(bool on) {
  torch::nn::Module::train(on);
  low_rank_->training = on;
}

void LowRankAdapterImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("attentive::LowRankAdapter(rank={}, scale={}, dropout={})", low_rank_->a.size(0),
                        low_rank_->scale, low_rank_->dropout);
}

void LowRankAdapterImpl::put_on(const at::Tensor& weight, int64_t first, int64_t first_of_b, int64_t count) {
  if (low_rank_->magnitude.defined() && draws_first_weights()) {
    const NormalTensorsGuard kept;
    const auto base = weight.narrow(0, first, count).to(low_rank_->magnitude.scalar_type());
    low_rank_->magnitude.narrow(0, first_of_b, count).copy_(at::linalg_vector_norm(base, 2, 1));
  }
  put_adapter(weight, {low_rank_, first, first_of_b, count});
}

at::Tensor LowRankAdapterImpl::sum_with(const at::Tensor& weight) const {
  return adapted_weight(weight, low_rank_);
}

void detail::refuse_adapters(const char* caller, const torch::nn::Module& module) {
  for (const auto& part : module.named_modules("", /*include_self=*/false)) {
    TORCH_CHECK_VALUE(!dynamic_cast<const LowRankAdapterImpl*>(part.value().get()), caller,
                      ": expected a module without adapters, got one with \"", part.key(),
                      "\"; Lora::detach() removes them");
  }
}

}  // namespace attentive
