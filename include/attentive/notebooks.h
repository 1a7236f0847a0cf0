#pragma once

/// Includes every class of attention in the five documents that this project follows: those of the folder
/// notebooks/, which are there to learn from, and those that programs use as well.
///
/// `attentive::MultiHeadAttention` is chapter 3's last class, and stands in modules/.

#include <attentive/functional/attention.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/notebooks/attention_blog.h>
#include <attentive/notebooks/chapter_3.h>
#include <attentive/notebooks/toy_notebook.h>
#include <attentive/notebooks/vision_transformer.h>
