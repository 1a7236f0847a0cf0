#pragma once

/// Includes every public header of `attentive::files`. A program that is rebuilt often compiles faster if it
/// includes only what it uses.

#include <attentive/files/file_value.h>
#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>
#include <attentive/files/torch_file.h>
