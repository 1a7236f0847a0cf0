#pragma once

/// Everything of `attentive::files` in one include. Programs that build often include what they use.

#include <attentive/files/file_value.h>
#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>
#include <attentive/files/torch_file.h>
