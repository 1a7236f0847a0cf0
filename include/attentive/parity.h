#pragma once

/// Includes every public header of `attentive::parity`. A program that is rebuilt often compiles faster if it
/// includes only what it uses.

#include <attentive/parity/case.h>
#include <attentive/parity/compare.h>
