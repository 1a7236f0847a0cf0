#pragma once

/// Includes every public header of `attentive::attention`. A program that is rebuilt often compiles faster if
/// it includes only what it uses.

#include <attentive/cache/delta_cache.h>
#include <attentive/cache/kv_cache.h>
#include <attentive/compat/from.h>
#include <attentive/compat/multihead_attention.h>
#include <attentive/compat/transformer.h>
#include <attentive/compat/transformer_layers.h>
#include <attentive/core/mask.h>
#include <attentive/core/module_state.h>
#include <attentive/core/option_list.h>
#include <attentive/core/options.h>
#include <attentive/functional/activation_checkpoint.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/attention_recorder.h>
#include <attentive/functional/explain.h>
#include <attentive/functional/gated_delta_rule.h>
#include <attentive/functional/heads_and_windows.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/functional/linear_cross_entropy.h>
#include <attentive/functional/merge_attention.h>
#include <attentive/functional/named_masks.h>
#include <attentive/modules/convert.h>
#include <attentive/modules/gated_delta_net.h>
#include <attentive/modules/latent_attention.h>
#include <attentive/modules/module.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/norms.h>
#include <attentive/modules/position_bias.h>
#include <attentive/modules/positions.h>
#include <attentive/modules/print_options.h>
#include <attentive/modules/transformer_attention.h>
#include <attentive/modules/transformer_blocks.h>
#include <attentive/notebooks/attention_blog.h>
#include <attentive/notebooks/chapter_3.h>
#include <attentive/notebooks/toy_notebook.h>
#include <attentive/notebooks/vision_transformer.h>
#include <attentive/score/score_callbacks.h>
#include <attentive/score/score_mod.h>
#include <attentive/score/tensors.h>
#include <attentive/score/tiles.h>
#include <attentive/score/vector_set.h>
#include <attentive/version.h>
