#pragma once

/// Everything of `attentive::parity` in one include. Programs that build often include what they use.

#include <attentive/parity/case.h>
#include <attentive/parity/case_attention.h>
#include <attentive/parity/compare.h>
#include <attentive/parity/draws.h>
