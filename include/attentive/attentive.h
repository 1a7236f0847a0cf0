#pragma once

/// Everything of `attentive::attentive` in one include. Programs that build often include what they use.

#include <attentive/compat/layer_norm.h>
#include <attentive/compat/multihead_attention.h>
#include <attentive/compat/transformer_decoder_layer.h>
#include <attentive/compat/transformer_encoder_layer.h>
#include <attentive/compat/transformer_layer_options.h>
#include <attentive/core/guards.h>
#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/core/result.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/explain.h>
#include <attentive/functional/heads.h>
#include <attentive/io/case.h>
#include <attentive/io/safetensors.h>
#include <attentive/io/state_dict.h>
#include <attentive/modules/causal_attention.h>
#include <attentive/modules/cross_attention.h>
#include <attentive/modules/fused_self_attention.h>
#include <attentive/modules/matrix_init.h>
#include <attentive/modules/matrix_self_attention.h>
#include <attentive/modules/module.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/multi_head_attention_wrapper.h>
#include <attentive/modules/multi_head_self_attention.h>
#include <attentive/modules/scaled_dot_product_attention.h>
#include <attentive/modules/self_attention_v1.h>
#include <attentive/modules/self_attention_v2.h>
#include <attentive/modules/shared_head_attention.h>
#include <attentive/version.h>
