#pragma once

namespace bench {

/// Flops of one step of `amx_loop`; 0 if there is no matrix unit.
double amx_flops_a_step();

/// Multiplies registers of the matrix unit only, without loads or stores.
void amx_loop(long steps);

}  // namespace bench
