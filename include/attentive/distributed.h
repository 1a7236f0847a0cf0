#pragma once

/// Includes every public header of `attentive::distributed`. A program that is rebuilt often compiles faster
/// if it includes only what it uses.

#include <attentive/distributed/context_attention.h>
#include <attentive/distributed/data_parallel.h>
#include <attentive/distributed/group.h>
