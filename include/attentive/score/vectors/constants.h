#pragma once

namespace attentive::kernels::cpu {

constexpr float kLog2e = 1.44269504088896340736f;

}  // namespace attentive::kernels::cpu
