#pragma once

/// Includes every class of attention in the five documents that this project follows: those of the folder
/// notebooks/, which are there to learn from, and those that programs use as well.
///
/// `attentive::MultiHeadAttention` is chapter 3's last class, and stands in modules/.

#include <attentive/functional/attention.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/modules/cross_attention.h>
#include <attentive/modules/linear_attention.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/notebooks/causal_attention.h>
#include <attentive/notebooks/fused_self_attention.h>
#include <attentive/notebooks/matrix_init.h>
#include <attentive/notebooks/matrix_self_attention.h>
#include <attentive/notebooks/multi_head_attention_wrapper.h>
#include <attentive/notebooks/multi_head_self_attention.h>
#include <attentive/notebooks/scaled_dot_product_attention.h>
#include <attentive/notebooks/self_attention_v1.h>
#include <attentive/notebooks/self_attention_v2.h>
#include <attentive/notebooks/shared_head_attention.h>
