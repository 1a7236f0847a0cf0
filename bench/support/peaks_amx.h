#pragma once

namespace bench {

/// Flops of one step of `amx_loop`; 0 where there is no matrix unit.
double amx_flops_a_step();

/// Products of registers of the matrix unit alone: nothing is loaded or stored.
void amx_loop(long steps);

}  // namespace bench
