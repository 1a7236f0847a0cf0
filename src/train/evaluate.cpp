#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <attentive/train/evaluate.h>

#include "core/check.h"
#include "modules/evaluation_mode.h"
#include "train/model_state.h"

namespace attentive {
namespace {

constexpr const char* kWho = "evaluate";

}  // namespace

double evaluate(torch::nn::Module& module, const BatchLoss& loss, const at::Tensor& tokens,
                const EvaluateOptions& options) {
  check_defined(kWho, "tokens", tokens);
  TORCH_CHECK_VALUE(tokens.dim() == 1 && tokens.size(0) >= 2, kWho,
                    ": expected tokens of shape (N,) with N >= 2, got ", shape_string(tokens.sizes()));
  TORCH_CHECK_TYPE(at::isIntegralType(tokens.scalar_type(), /*includeBool=*/false) && !tokens.is_meta(), kWho,
                   ": expected tokens as integers with data, got ", describe(tokens), " on ",
                   tokens.device());
  TORCH_CHECK_VALUE(options.block > 0 && options.batch > 0, kWho, ": expected block > 0 and batch > 0, got ",
                    options.block, " and ", options.batch);
  TORCH_CHECK_VALUE(loss, kWho, ": expected a loss function, got none");
  const EvaluationMode evaluation(module);
  const at::NoGradGuard no_grad;
  const auto targets = tokens.size(0) - 1;
  double sum = 0.0;
  const auto add = [&](int64_t begin, int64_t rows, int64_t width) {
    const auto cut = [&](int64_t from) {
      return tokens.narrow(0, from, rows * width).to(at::kLong).view({rows, width}).to(options.device);
    };
    const auto mean = loss(cut(begin), cut(begin + 1));
    check_loss(kWho, mean);
    sum += mean.item<double>() * static_cast<double>(rows * width);
  };
  int64_t at = 0;
  while (targets - at >= options.block) {
    const auto rows = std::min(options.batch, (targets - at) / options.block);
    add(at, rows, options.block);
    at += rows * options.block;
  }
  if (at < targets) add(at, 1, targets - at);
  return sum / static_cast<double>(targets);
}

}  // namespace attentive
