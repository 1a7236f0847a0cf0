#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <attentive/notebooks/matrix_init.h>

#include "core/check.h"
#include "modules/first_weights.h"

namespace attentive {

std::string_view to_string(MatrixInit value) {
  return enum_name(value, {"uniform", "normal", "kaiming_uniform"});
}

at::Tensor draw_matrix(int64_t d_in, int64_t d_out, MatrixInit init) {
  if (!draws_first_weights()) return at::empty({d_in, d_out});
  switch (init) {
    case MatrixInit::Uniform:
      return at::rand({d_in, d_out});
    case MatrixInit::Normal:
      return at::randn({d_in, d_out});
    case MatrixInit::KaimingUniform:
      break;
  }
  const double bound = 1.0 / std::sqrt(static_cast<double>(d_in));
  return at::empty({d_in, d_out}).uniform_(-bound, bound);
}

}  // namespace attentive
